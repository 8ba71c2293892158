-- Who runs a transaction, if it is not over.
-- $1 its number. Locks nothing. Reads the server's lists of locks and sessions.
SELECT DISTINCT l.pid, a.application_name, a.usename::text, a.state,
    (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint,
    l.virtualtransaction
FROM pg_locks AS l
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock'
  AND l.transactionid::text = $1
