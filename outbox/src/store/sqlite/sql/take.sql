-- Takes rows out of the table and says what they were: for the test broker, whose rows live in
-- memory. ?1 the id behind which they lie. Locks: the file. Index: the primary key.
DELETE FROM "outbox"
WHERE id > ?1
RETURNING id, queue, payload, headers, attempts_count, deliveries_count,
    created_at, next_attempt_at, first_attempt_at, last_attempt_at,
    acquired_at, acquired_token, timer_id
