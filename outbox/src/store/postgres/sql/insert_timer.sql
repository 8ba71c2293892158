-- Publishes a message with a timer name, unless a live row of the queue has it.
-- $1 queue, $2 payload, $3 headers, $4 due time or NULL, $5 delay in
-- microseconds, $6 channel, $7 lock of the sleepers or NULL, $8 timer name.
-- Index: "outbox_timer_id_uq" decides.
INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at, timer_id)
VALUES ($1, $2, $3::jsonb, clock_timestamp(),
    coalesce($4, clock_timestamp() + $5 * interval '1 microsecond'), $8)
ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO NOTHING
RETURNING id, true, CASE WHEN pg_try_advisory_lock(hashtextextended($7, hashtext($1) & 63)) THEN pg_advisory_unlock(hashtextextended($7, hashtext($1) & 63))
        WHEN $6 IS NULL THEN true
        ELSE pg_notify($6, $1) IS NULL END
