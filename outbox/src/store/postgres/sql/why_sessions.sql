-- Who holds locks of these modes on the table, the oldest transaction first. One that
-- is prepared has no session.
-- $1 the table, quoted; $2 modes. Locks nothing. Reads the server's lists of locks and
-- sessions.
SELECT l.pid, a.application_name, a.usename::text, a.state,
    (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint,
    l.virtualtransaction
FROM (SELECT DISTINCT held.pid, held.virtualtransaction
      FROM pg_locks AS held
      WHERE held.locktype = 'relation' AND held.relation = $1::regclass AND held.granted
        AND held.mode = ANY($2::text[]) AND held.pid IS DISTINCT FROM pg_backend_pid()
        AND held.database = (SELECT d.oid FROM pg_database AS d
                             WHERE d.datname = current_database())) AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
ORDER BY a.xact_start NULLS FIRST
LIMIT 20
