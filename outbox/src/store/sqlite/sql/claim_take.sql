-- Leases one row that claim_find found in the same transaction.
-- ?1 id, ?2 token. Index: the primary key.
UPDATE "outbox"
SET acquired_token = ?2,
    acquired_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    deliveries_count = deliveries_count + 1
WHERE id = ?1
RETURNING id, queue, payload, headers, attempts_count, deliveries_count,
    created_at, next_attempt_at, first_attempt_at, last_attempt_at,
    acquired_at, acquired_token, timer_id
