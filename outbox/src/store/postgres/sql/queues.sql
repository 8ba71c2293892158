-- Names the queues that have rows or open dead letters, or are paused; which of these
-- holds, since when a pause, and why.
-- $1 queues at most.
-- Locks nothing. Indexes: "outbox_due_idx" and "outbox_dlq_open_idx" are entered once for
-- each queue, behind the queue before it: what a queue holds is not read.
WITH RECURSIVE waiting(queue) AS (
    (SELECT o.queue::text FROM "outbox" AS o
     WHERE o.next_attempt_at >= '-infinity'
     ORDER BY o.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT o.queue::text FROM "outbox" AS o
            WHERE o.queue > waiting.queue AND o.next_attempt_at >= '-infinity'
            ORDER BY o.queue LIMIT 1)
    FROM waiting WHERE waiting.queue IS NOT NULL
), dead(queue) AS (
    (SELECT d.queue::text FROM "outbox_dlq" AS d
     WHERE d.status = 'failed'
     ORDER BY d.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT d.queue::text FROM "outbox_dlq" AS d
            WHERE d.queue > dead.queue AND d.status = 'failed'
            ORDER BY d.queue LIMIT 1)
    FROM dead WHERE dead.queue IS NOT NULL
), found AS (
    (SELECT waiting.queue, true AS rows, false AS letters, NULL::timestamptz AS paused_at,
        NULL::text AS note
     FROM waiting WHERE waiting.queue IS NOT NULL LIMIT $1)
    UNION ALL
    (SELECT dead.queue, false, true, NULL, NULL FROM dead WHERE dead.queue IS NOT NULL LIMIT $1)
    UNION ALL
    (SELECT paused.queue::text, false, false, paused.paused_at, paused.note
     FROM "outbox_paused" AS paused ORDER BY paused.queue LIMIT $1)
)
SELECT queue, bool_or(rows), bool_or(letters), max(paused_at), max(note)
FROM found
GROUP BY queue
ORDER BY queue
LIMIT $1
