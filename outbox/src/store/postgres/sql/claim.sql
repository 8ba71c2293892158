-- Leases due rows: free ones and those whose lease ran out.
-- $1 queues, $2 rows at most, $3 lease in microseconds, $4 token.
-- Locks: FOR UPDATE on the rows taken, for this statement; rows that somebody
-- else has locked are skipped.
-- Index: "outbox_due_idx" (queue, next_attempt_at, id), read in order for each
-- queue. The clock is a subquery because a volatile function cannot bound an
-- index scan. MATERIALIZED, because a planner that inlines the subquery may run
-- it again for every row and claim more than $2.
WITH due AS MATERIALIZED (
    SELECT candidate.id, candidate.acquired_token AS previous
    FROM unnest($1::text[]) AS wanted(queue)
    CROSS JOIN LATERAL (
        SELECT o.id, o.acquired_token, o.next_attempt_at
        FROM "outbox" AS o
        WHERE o.queue = wanted.queue
          AND o.next_attempt_at <= (SELECT clock_timestamp())
          AND (o.acquired_token IS NULL
               OR o.acquired_at <= (SELECT clock_timestamp()) - $3 * interval '1 microsecond')
        ORDER BY o.next_attempt_at, o.id
        LIMIT $2
        FOR UPDATE OF o SKIP LOCKED
    ) AS candidate
    ORDER BY candidate.next_attempt_at, candidate.id
    LIMIT $2
)
UPDATE "outbox" AS o
SET acquired_token = $4,
    acquired_at = clock_timestamp(),
    deliveries_count = o.deliveries_count + 1
FROM due
WHERE o.id = due.id
  AND (o.acquired_token IS NULL
       OR o.acquired_at <= clock_timestamp() - $3 * interval '1 microsecond')
RETURNING o.id, o.queue, o.payload, o.headers::text, o.attempts_count, o.deliveries_count,
    o.created_at, o.next_attempt_at, o.first_attempt_at, o.last_attempt_at,
    o.acquired_at, o.acquired_token, o.timer_id, due.previous
