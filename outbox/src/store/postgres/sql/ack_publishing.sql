-- Deletes handled rows whose lease still holds, and publishes what their handlers
-- returned: a row whose lease is lost publishes nothing.
-- $1 ids. Of each run of them: $2 token, $3 and $4 places of its first and last id.
-- Of each message: $5 and $6 id and token of the row it is published for, $7 queue,
-- $8 payload, $9 headers, $10 due time or NULL, $11 delay in microseconds, $12 timer
-- name or NULL, $13 whether to extend.
-- $14 channel, $15 lock of the sleepers or NULL.
-- Locks: the rows, run by run, in order of id; rows of conflicting timers.
-- Index: the primary key; "outbox_timer_id_uq" decides on timers.
WITH acked AS (
    DELETE FROM "outbox" AS o
    USING unnest($2::uuid[], $3::int[], $4::int[]) AS run(token, first, last)
    WHERE o.id = ANY(($1::bigint[])[run.first:run.last]) AND o.acquired_token = run.token
    RETURNING o.id, run.token
), m AS MATERIALIZED (
    SELECT given.queue, given.payload, given.headers::jsonb AS headers,
        coalesce(given.at, clock_timestamp() + given.delay * interval '1 microsecond') AS due,
        given.timer_id, given.extend, given.place
    FROM unnest($5::bigint[], $6::uuid[], $7::text[], $8::bytea[], $9::text[],
            $10::timestamptz[], $11::bigint[], $12::text[], $13::bool[])
        WITH ORDINALITY
        AS given(id, token, queue, payload, headers, at, delay, timer_id, extend, place)
    WHERE ((given.id, given.token) IN (SELECT acked.id, acked.token FROM acked)) IS TRUE
), inserted AS (
    INSERT INTO "outbox" AS o (queue, payload, headers, created_at, next_attempt_at, timer_id)
    SELECT m.queue, m.payload, m.headers, clock_timestamp(), m.due, m.timer_id
    FROM m
    ORDER BY m.place
    ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO UPDATE
    SET (next_attempt_at, payload, headers, created_at, attempts_count, deliveries_count,
            first_attempt_at, last_attempt_at) = (
        SELECT excluded.next_attempt_at, excluded.payload, excluded.headers, excluded.created_at,
            0, 0, NULL::timestamptz, NULL::timestamptz
        WHERE excluded.next_attempt_at > o.next_attempt_at
        UNION ALL
        SELECT o.next_attempt_at, o.payload, o.headers, o.created_at, o.attempts_count,
            o.deliveries_count, o.first_attempt_at, o.last_attempt_at
        WHERE excluded.next_attempt_at <= o.next_attempt_at)
    WHERE o.acquired_token IS NULL
      AND EXISTS (SELECT FROM m WHERE m.queue = o.queue AND m.timer_id = o.timer_id AND m.extend)
    RETURNING o.queue
), woken AS MATERIALIZED (
    SELECT count(CASE WHEN pg_try_advisory_lock(named.lock) THEN pg_advisory_unlock(named.lock)
            WHEN $14 IS NULL THEN true
            ELSE pg_notify($14, named.queue) IS NULL END)
    FROM (SELECT DISTINCT queue, hashtextextended($15, hashtext(queue) & 63) AS lock
        FROM inserted) AS named
), counted AS (
    SELECT queue, count(*) AS rows FROM inserted GROUP BY queue
)
SELECT array_agg(acked.id), array_agg(acked.token),
    (SELECT array_agg(counted.queue ORDER BY counted.queue) FROM counted),
    (SELECT array_agg(counted.rows ORDER BY counted.queue) FROM counted)
FROM acked CROSS JOIN woken
