-- Reads what claim_read leaves, in the same way: the rows that came due later than its own.
-- ?1 queue, ?2 token, ?3 due time of the first of all, ?4 of the last, ?5 how many they are.
-- Index: "outbox_due_idx" (queue, next_attempt_at, id), read in order.
SELECT payload, headers,
    json_array(id, attempts_count, deliveries_count, created_at, first_attempt_at,
        last_attempt_at, timer_id)
FROM "outbox"
WHERE queue = ?1
  AND acquired_token = ?2
  AND next_attempt_at > ?3 AND next_attempt_at <= ?4
ORDER BY next_attempt_at, id
LIMIT ?5
