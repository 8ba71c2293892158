-- Reads waiting and leased rows of a queue in order of due time.
-- $1 queue, $2 rows at most. Locks nothing. Index: "outbox_due_idx".
SELECT id, queue, payload, headers::text, attempts_count, deliveries_count,
    created_at, next_attempt_at, first_attempt_at, last_attempt_at,
    acquired_at, acquired_token, timer_id
FROM "outbox"
WHERE queue = $1 AND next_attempt_at >= '-infinity'
ORDER BY next_attempt_at, id
LIMIT $2
