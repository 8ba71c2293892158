-- Names the queues that have rows or open dead letters, or are paused; which of these
-- holds, since when a pause, and why.
-- ?1 queues at most.
-- Locks nothing. Indexes: "outbox_due_idx" and "outbox_dlq_open_idx" are entered once for
-- each queue, behind the queue before it: what a queue holds is not read. The second is
-- named, because SQLite would rather read all open letters by their status, and sort.
WITH RECURSIVE waiting(queue) AS (
    SELECT (SELECT queue FROM "outbox" ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT o.queue FROM "outbox" AS o WHERE o.queue > waiting.queue
            ORDER BY o.queue LIMIT 1)
    FROM waiting WHERE waiting.queue IS NOT NULL
), dead(queue) AS (
    SELECT (SELECT queue FROM "outbox_dlq" INDEXED BY "outbox_dlq_open_idx"
            WHERE status = 'failed' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT d.queue FROM "outbox_dlq" AS d INDEXED BY "outbox_dlq_open_idx"
            WHERE d.queue > dead.queue AND d.status = 'failed'
            ORDER BY d.queue LIMIT 1)
    FROM dead WHERE dead.queue IS NOT NULL
), found(queue, rows, letters, paused_at, note) AS (
    SELECT queue, 1, 0, NULL, NULL
    FROM (SELECT queue FROM waiting WHERE queue IS NOT NULL LIMIT ?1)
    UNION ALL
    SELECT queue, 0, 1, NULL, NULL
    FROM (SELECT queue FROM dead WHERE queue IS NOT NULL LIMIT ?1)
    UNION ALL
    SELECT queue, 0, 0, paused_at, note FROM "outbox_paused"
)
SELECT queue, max(rows), max(letters), max(paused_at), max(note)
FROM found
GROUP BY queue
ORDER BY queue
LIMIT ?1
