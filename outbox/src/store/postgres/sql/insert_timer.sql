-- Publishes a message with a timer name, unless a live row of the queue has it.
-- $1 to $7 as insert_due, $8 timer name.
-- Index: "outbox_timer_id_uq" decides.
INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at, timer_id)
VALUES ($1, $2, $3::jsonb, clock_timestamp(),
    coalesce($6, clock_timestamp() + $7 * interval '1 microsecond'), $8)
ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO NOTHING
RETURNING id, true, CASE WHEN pg_try_advisory_lock($5) THEN pg_advisory_unlock($5)
        WHEN $4 IS NULL THEN true
        ELSE pg_notify($4, $1) IS NULL END
