-- Publishes one message in the caller's transaction, and wakes the queue's
-- readers when that commits, if one of them sleeps: see listen.rs. The lock is asked
-- for after the row is written, when the transaction has its number.
-- $1 queue, $2 payload, $3 headers, $4 due time or NULL, $5 delay in
-- microseconds, $6 channel, or NULL to notify never, $7 lock of the sleepers, or NULL
-- not to ask for them.
-- PostgreSQL sends equal notifications of one transaction once.
INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at)
VALUES ($1, $2, $3::jsonb, clock_timestamp(),
    coalesce($4, clock_timestamp() + $5 * interval '1 microsecond'))
RETURNING id, true, CASE WHEN pg_try_advisory_lock(hashtextextended($7, hashtext($1) & 63)) THEN pg_advisory_unlock(hashtextextended($7, hashtext($1) & 63))
        WHEN $6 IS NULL THEN true
        ELSE pg_notify($6, $1) IS NULL END
