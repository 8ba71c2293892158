-- Empties the table and says what was in it: for the test broker, whose rows live
-- in memory. Locks: the file.
DELETE FROM "outbox"
RETURNING id, queue, payload, headers, attempts_count, deliveries_count,
    created_at, next_attempt_at, first_attempt_at, last_attempt_at,
    acquired_at, acquired_token, timer_id
