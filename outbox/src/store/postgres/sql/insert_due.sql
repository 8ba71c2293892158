-- As insert, for a message that is due at a time or after a while.
-- $1 to $5 as there, $6 due time or NULL, $7 delay in microseconds.
INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at)
VALUES ($1, $2, $3::jsonb, clock_timestamp(),
    coalesce($6, clock_timestamp() + $7 * interval '1 microsecond'))
RETURNING id, true, CASE WHEN pg_try_advisory_lock($5) THEN pg_advisory_unlock($5)
        WHEN $4 IS NULL THEN true
        ELSE pg_notify($4, $1) IS NULL END
