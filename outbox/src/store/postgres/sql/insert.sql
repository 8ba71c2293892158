-- Publishes one message in the caller's transaction, and wakes the queue's
-- readers when that commits.
-- $1 queue, $2 payload, $3 headers, $4 due time or NULL, $5 delay in
-- microseconds, $6 channel.
-- PostgreSQL sends equal notifications of one transaction once.
INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at)
VALUES ($1, $2, $3::jsonb, clock_timestamp(),
    coalesce($4, clock_timestamp() + $5 * interval '1 microsecond'))
RETURNING id, true, pg_notify($6, $1)
