-- Publishes messages of one queue and one due time. Their ids grow in the order given:
-- unnest gives its rows in that order, and nothing here changes it.
-- $1 queue, $2 payloads, $3 headers, $4 due time or NULL, $5 delay in microseconds,
-- $6 channel, $7 lock of the queue's sleepers or NULL.
-- What all share is sent and worked out once; whom to wake is asked with the first row, when
-- the transaction has its number, and comes to nothing: a column of its own would go out with
-- each. The ids go out as they are written: collected in one row, each would be kept first.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
)
INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at)
SELECT $1, m.payload, m.headers::jsonb, (SELECT now FROM clock),
    (SELECT coalesce($4, now + $5 * interval '1 microsecond') FROM clock)
FROM unnest($2::bytea[], $3::text[]) AS m(payload, headers)
RETURNING id + (SELECT 0 * (CASE
        WHEN pg_try_advisory_lock($7) THEN pg_advisory_unlock($7)
        WHEN $6 IS NULL THEN true
        ELSE pg_notify($6, $1) IS NULL END)::integer)
