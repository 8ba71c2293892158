-- Publishes one message in the caller's transaction; a taken timer name inserts
-- nothing.
-- ?1 queue, ?2 payload, ?3 headers, ?4 due time or NULL, ?5 delay in
-- microseconds, ?6 timer name or NULL. Index: "outbox_timer_id_uq" decides.
INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at, timer_id)
VALUES (?1, ?2, ?3, CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    coalesce(?4, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?5), ?6)
ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO NOTHING
RETURNING id
