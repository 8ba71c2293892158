-- The transactions that have read the table of paused queues and are not over: claims
-- that began before a pause was committed.
-- $1 that table, quoted; $2 those to look for, or NULL.
-- Locks nothing. Reads the server's list of locks.
SELECT DISTINCT l.virtualtransaction
FROM pg_locks AS l
WHERE l.locktype = 'relation' AND l.relation = $1::regclass AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
  AND (l.virtualtransaction = ANY($2::text[])) IS NOT FALSE
