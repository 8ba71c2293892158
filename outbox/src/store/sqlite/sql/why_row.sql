-- Reads a row without its payload; beside it the database's time, and whether its queue
-- is paused.
-- ?1 id. Locks nothing. Indexes: the primary keys.
SELECT o.id, o.queue, x'', o.headers, o.attempts_count, o.deliveries_count, o.created_at,
    o.next_attempt_at, o.first_attempt_at, o.last_attempt_at, o.acquired_at, o.acquired_token,
    o.timer_id, CAST(unixepoch('subsec') * 1000000 AS INTEGER), paused.paused_at, paused.note
FROM "outbox" AS o
LEFT JOIN "outbox_paused" AS paused ON paused.queue = o.queue
WHERE o.id = ?1
