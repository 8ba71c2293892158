-- Looks for traces of subscribers of a queue: who sleeps on it, see sleepers.rs, and the
-- leases among its oldest thousand rows.
-- $1 queue, $2 lock of its sleepers, $3 a row that does not count, $4 lease in microseconds.
-- Locks nothing. Index: "outbox_due_idx", in order.
SELECT (SELECT count(DISTINCT l.pid)
        FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.mode = 'ShareLock'
          AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
          AND (l.classid::bigint << 32) | l.objid::bigint = $2),
    (SELECT count(*)
     FROM (SELECT o.id, o.acquired_at
           FROM "outbox" AS o
           WHERE o.queue = $1 AND o.next_attempt_at >= '-infinity'
           ORDER BY o.next_attempt_at, o.id
           LIMIT 1000) AS first
     WHERE first.acquired_at > clock_timestamp() - $4 * interval '1 microsecond'
       AND first.id <> $3)
