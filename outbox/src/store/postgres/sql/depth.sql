-- What is in these queues, of each as far as its first rows, and how many dead letters
-- nobody has dealt with. What reads those stands in a line of its own, which is left out where none
-- are kept. And how full the server's queue of notifications is, asked once for all. A row that is
-- due since 1970 or before, which is what "always" may be, has no age.
-- $1 queues; $2 rows and letters that are read of each at most.
-- Locks: none.
-- Index: "outbox_due_idx", read in order; a comparison with a due time implies its predicate.
-- "outbox_dlq_open_idx", or "outbox_dlq_queue_failed_idx" before version 3 of the tables.
SELECT named.queue, found.backlog, found.due, found.leased, found.age,
    (SELECT pg_notification_queue_usage())
    , (SELECT count(*) FROM (SELECT FROM "outbox_dlq" AS d WHERE d.queue = named.queue AND d.status = 'failed' ORDER BY d.failed_at, d.id LIMIT $2) AS open)
FROM unnest($1::text[]) AS named(queue)
CROSS JOIN LATERAL (
    SELECT count(*) AS backlog, count(waiting.since) AS due, count(early.acquired_token) AS leased,
        coalesce(extract(epoch FROM clock_timestamp() - min(waiting.since)
            FILTER (WHERE waiting.since > 'epoch')), 0)::float8 AS age
    FROM (
        SELECT o.next_attempt_at, o.acquired_token
        FROM "outbox" AS o
        WHERE o.queue = named.queue AND o.next_attempt_at >= '-infinity'
        ORDER BY o.next_attempt_at, o.id
        LIMIT $2
    ) AS early
    CROSS JOIN LATERAL (
        SELECT CASE WHEN early.acquired_token IS NULL AND early.next_attempt_at <= clock_timestamp()
            THEN early.next_attempt_at END AS since
    ) AS waiting
) AS found
