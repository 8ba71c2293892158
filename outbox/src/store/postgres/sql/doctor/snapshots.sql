-- Who keeps dead rows of this database from being cleared away: kind, who in words, name,
-- seconds, transactions, and of a slot whether it is read. The first row only says whether
-- this role sees what others hold.
-- Locks nothing. Reads statistics, no table.
-- A transaction that has written holds back as much as a snapshot; one that vacuums does not.
SELECT 'seen' AS kind, '' AS who, '' AS name, NULL::float8 AS seconds, 0::bigint AS transactions,
    pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') AS active
UNION ALL
SELECT 'session', format('the session %s of role %s (application %s, %s)', pid, usename,
        coalesce(nullif(application_name, ''), 'unnamed'), coalesce(state, backend_type)),
    pid::text, extract(epoch FROM clock_timestamp() - xact_start)::float8,
    greatest(age(backend_xmin), age(backend_xid))::bigint, true
FROM pg_catalog.pg_stat_activity
WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
  AND datname = current_database() AND xact_start IS NOT NULL
  AND backend_type <> 'autovacuum worker' AND query NOT ILIKE 'vacuum%'
UNION ALL
SELECT 'prepared', format('the prepared transaction %s of role %s', gid, owner), gid,
    extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)::bigint, true
FROM pg_catalog.pg_prepared_xacts
WHERE database = current_database()
UNION ALL
SELECT 'slot', format('the replication slot %s', slot_name), slot_name::text, NULL,
    age(xmin)::bigint, active
FROM pg_catalog.pg_replication_slots
WHERE xmin IS NOT NULL
UNION ALL
-- By hot_standby_feedback; with a slot that is told of above.
SELECT 'standby', format('the standby %s at %s', coalesce(nullif(application_name, ''), 'unnamed'),
        coalesce(host(client_addr), 'a socket')),
    application_name, NULL, age(backend_xmin)::bigint, true
FROM pg_catalog.pg_stat_replication
WHERE backend_xmin IS NOT NULL
ORDER BY transactions DESC
