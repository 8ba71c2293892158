-- What is in these queues, of each as far as its first rows.
-- $1 queues; $2 rows that are read of each at most.
-- Locks: none.
-- Index: "outbox_due_idx", read in order; a comparison with a due time implies its predicate.
SELECT named.queue, found.backlog, found.due, found.leased, found.age
FROM unnest($1::text[]) AS named(queue)
CROSS JOIN LATERAL (
    SELECT count(*) AS backlog, count(waiting.since) AS due, count(early.acquired_token) AS leased,
        coalesce(extract(epoch FROM clock_timestamp() - min(waiting.since)), 0)::float8 AS age
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
