-- Puts a failed row off, one attempt spent, and gives its lease back.
-- ?1 id, ?2 token, ?3 delay in microseconds. Index: the primary key.
-- Also run for a range of ids: see batch.rs.
UPDATE "outbox"
SET attempts_count = min(max(attempts_count, 0), 9223372036854775806) + 1,
    next_attempt_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3,
    first_attempt_at =
        coalesce(first_attempt_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    last_attempt_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    acquired_token = NULL,
    acquired_at = NULL
WHERE id = ?1 AND acquired_token = ?2
