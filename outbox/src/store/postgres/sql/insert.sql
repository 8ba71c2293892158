-- Publishes one message that is due at once in the caller's transaction, and wakes the
-- queue's readers when that commits, if one of them sleeps: see sleepers.rs. The lock is asked
-- for after the row is written, when the transaction has its number.
-- $1 queue, $2 payload, $3 headers, $4 channel, or NULL to notify never, $5 lock of the
-- queue's sleepers, or NULL not to ask for them.
-- PostgreSQL sends equal notifications of one transaction once.
INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at)
VALUES ($1, $2, $3::jsonb, clock_timestamp(), clock_timestamp())
RETURNING id, true, CASE WHEN pg_try_advisory_lock($5) THEN pg_advisory_unlock($5)
        WHEN $4 IS NULL THEN true
        ELSE pg_notify($4, $1) IS NULL END
