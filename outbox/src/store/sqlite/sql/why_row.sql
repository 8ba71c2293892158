-- Reads a row without its payload; beside it the database's time, a transaction that
-- nobody has, as no row says who locked it, and whether its queue is paused: no join,
-- because for that a table that ANALYZE saw nearly empty is read whole.
-- ?1 id. Locks nothing. Indexes: the primary keys.
SELECT o.id, o.queue, x'', o.headers, o.attempts_count, o.deliveries_count, o.created_at,
    o.next_attempt_at, o.first_attempt_at, o.last_attempt_at, o.acquired_at, o.acquired_token,
    o.timer_id, CAST(unixepoch('subsec') * 1000000 AS INTEGER), '0',
    (SELECT paused_at FROM "outbox_paused" AS paused WHERE paused.queue = o.queue),
    (SELECT note FROM "outbox_paused" AS paused WHERE paused.queue = o.queue)
FROM "outbox" AS o
WHERE o.id = ?1
