-- Publishes many messages with one statement, in the order given.
-- $1 queues, $2 payloads, $3 headers, $4 due times or NULLs, $5 delays in
-- microseconds, $6 channel, $7 lock of the sleepers or NULL.
WITH inserted AS (
    INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at)
    SELECT m.queue, m.payload, m.headers::jsonb, clock_timestamp(),
        coalesce(m.at, clock_timestamp() + m.delay * interval '1 microsecond')
    FROM unnest($1::text[], $2::bytea[], $3::text[], $4::timestamptz[], $5::bigint[])
        WITH ORDINALITY AS m(queue, payload, headers, at, delay, place)
    ORDER BY m.place
    RETURNING id, queue
), woken AS MATERIALIZED (
    SELECT count(CASE WHEN pg_try_advisory_lock(named.lock) THEN pg_advisory_unlock(named.lock)
            ELSE pg_notify($6, named.queue) IS NULL END)
    FROM (SELECT DISTINCT queue, hashtextextended($7, hashtext(queue) & 63) AS lock
        FROM inserted) AS named
)
SELECT id, NULL::text, NULL::text, true FROM inserted CROSS JOIN woken ORDER BY id
