-- Who holds locks of these modes on the table or on one of its partitions, the oldest transaction
-- first. One that is prepared has no session.
-- $1 the table, quoted; $2 modes; $3 whether also who waits for one, and for whom, because
-- all others wait behind it. Locks nothing. Reads the server's lists of locks and sessions.
WITH locks AS MATERIALIZED (
    SELECT l.pid, l.virtualtransaction, l.granted, l.mode = ANY($2::text[]) AS counts
    FROM pg_locks AS l
    WHERE l.locktype = 'relation'
      AND (l.relation = to_regclass($1)
          OR l.relation IN (SELECT i.inhrelid FROM pg_inherits AS i WHERE i.inhparent = to_regclass($1)))
      AND l.pid IS DISTINCT FROM pg_backend_pid()
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
), awaited AS MATERIALIZED (
    SELECT unnest(pg_blocking_pids(w.pid)) AS pid
    FROM (SELECT DISTINCT pid FROM locks WHERE $3 AND counts AND NOT granted) AS w
)
SELECT l.pid, a.application_name, a.usename::text, a.state,
    (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint,
    l.virtualtransaction
FROM (SELECT DISTINCT pid, virtualtransaction FROM locks
      WHERE counts AND (granted OR $3) OR pid IN (SELECT pid FROM awaited)) AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
ORDER BY a.xact_start NULLS FIRST
LIMIT 20
