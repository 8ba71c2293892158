-- How many dead letters of these queues nobody has dealt with, of each up to a number.
-- $1 queues; $2 letters that are read of each at most.
-- Locks: none.
-- Index: "outbox_dlq_open_idx"; before version 3 of the tables "outbox_dlq_queue_failed_idx".
SELECT named.queue, found.letters
FROM unnest($1::text[]) AS named(queue)
CROSS JOIN LATERAL (
    SELECT count(*) AS letters
    FROM (
        SELECT d.id
        FROM "outbox_dlq" AS d
        WHERE d.queue = named.queue AND d.status = 'failed'
        ORDER BY d.failed_at, d.id
        LIMIT $2
    ) AS open
) AS found
