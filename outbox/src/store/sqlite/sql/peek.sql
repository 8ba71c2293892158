-- Reads the first rows of a queue, waiting and leased ones, in order of due time, with
-- the beginnings of their payloads, and their sizes.
-- ?1 queue, ?2 rows at most, ?3 bytes of each payload at most.
-- Locks nothing. Index: "outbox_due_idx", in order.
SELECT id, queue, substr(payload, 1, ?3), headers, attempts_count, deliveries_count,
    created_at, next_attempt_at, first_attempt_at, last_attempt_at,
    acquired_at, acquired_token, timer_id,
    length(payload), CAST(unixepoch('subsec') * 1000000 AS INTEGER)
FROM "outbox"
WHERE queue = ?1
ORDER BY next_attempt_at, id
LIMIT ?2
