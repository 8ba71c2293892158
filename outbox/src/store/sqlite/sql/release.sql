-- Gives a lease back: at once, or (snooze) to be due again after a while.
-- ?1 id, ?2 token, ?3 delay in microseconds or NULL, ?4 deliveries to take back,
-- ?5 a time before which it is not due, or NULL.
-- Index: the primary key.
-- Also run for a range of ids: see batch.rs.
UPDATE "outbox"
SET acquired_token = NULL,
    acquired_at = NULL,
    deliveries_count = max(deliveries_count - ?4, 0),
    next_attempt_at = max(coalesce(?5, -9223372036854775808),
        coalesce(CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3, next_attempt_at))
WHERE id = ?1 AND acquired_token = ?2
