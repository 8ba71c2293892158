-- Deletes handled rows whose lease still holds, and publishes what their handlers
-- returned: a row whose lease is lost publishes nothing.
-- $1 ids, ascending. Of each run of them: $2 token, $3 its first id.
-- Of each message: $4 and $5 id and token of the row it is published for, $6 queue,
-- $7 payload, $8 headers, $9 due time or NULL, $10 delay in microseconds, $11 timer
-- name or NULL, $12 whether to extend.
-- $13 channel, $14 start of the sleepers' locks or NULL.
-- A timer that is not moved is left out, or its conflict would lock a row to no purpose. What a
-- trigger of somebody's leaves out fails, as in bury: its row would go without it. It shows by not
-- coming back; so where somebody took the name of a timer while this waited for them, theirs is
-- written as it is, and comes back. Counted is what is new or was moved: see insert_timer_extend.
-- Locks: the rows, in order of id; rows of conflicting timers.
-- Index: the primary key, a token is compared as in ack; "outbox_timer_id_uq" decides on timers.
WITH acked AS (
    DELETE FROM "outbox" AS o
    WHERE o.id = ANY($1::bigint[])
      AND o.acquired_token IS NOT DISTINCT FROM ($2::uuid[])[width_bucket(o.id, $3::bigint[])]
    RETURNING o.id, o.acquired_token AS token
), m AS MATERIALIZED (
    SELECT given.queue, given.payload, given.headers::jsonb AS headers,
        coalesce(given.at, clock_timestamp() + given.delay * interval '1 microsecond') AS due,
        given.timer_id, given.extend, given.place,
        given.timer_id IS NULL OR NOT EXISTS (
            SELECT FROM "outbox" AS held
            WHERE held.queue = given.queue AND held.timer_id = given.timer_id
              AND (held.acquired_token IS NOT NULL OR NOT given.extend)
              AND held.id NOT IN (SELECT acked.id FROM acked)) AS free
    FROM unnest($4::bigint[], $5::uuid[], $6::text[], $7::bytea[], $8::text[],
            $9::timestamptz[], $10::bigint[], $11::text[], $12::bool[])
        WITH ORDINALITY
        AS given(id, token, queue, payload, headers, at, delay, timer_id, extend, place)
    WHERE ((given.id, given.token) IN (SELECT acked.id, acked.token FROM acked)) IS TRUE
), made AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), inserted AS (
    INSERT INTO "outbox" AS o (queue, payload, headers, created_at, next_attempt_at, timer_id)
    SELECT m.queue, m.payload, m.headers, made.now, m.due, m.timer_id
    FROM m CROSS JOIN made
    WHERE m.free
    ORDER BY m.place
    ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO UPDATE
    SET (next_attempt_at, payload, headers, created_at, attempts_count, deliveries_count,
            first_attempt_at, last_attempt_at) = (
        SELECT excluded.next_attempt_at, excluded.payload, excluded.headers, excluded.created_at,
            0, 0, NULL::timestamptz, NULL::timestamptz
        WHERE excluded.next_attempt_at > o.next_attempt_at AND o.acquired_token IS NULL
          AND EXISTS (
            SELECT FROM m WHERE m.queue = o.queue AND m.timer_id = o.timer_id AND m.extend)
        UNION ALL
        SELECT o.next_attempt_at, o.payload, o.headers, o.created_at, o.attempts_count,
            o.deliveries_count, o.first_attempt_at, o.last_attempt_at
        LIMIT 1)
    RETURNING o.queue, o.xmax = 0 OR o.created_at = (SELECT now FROM made) AS written
), woken AS MATERIALIZED (
    SELECT count(CASE WHEN pg_try_advisory_lock(named.lock) THEN pg_advisory_unlock(named.lock)
            WHEN $13 IS NULL THEN true
            ELSE pg_notify($13, named.queue) IS NULL END)
    FROM (SELECT queue,
            $14::bigint | (get_byte(sha256(convert_to(queue, 'UTF8')), 0) & 63) AS lock
        FROM (SELECT DISTINCT queue FROM inserted) AS each) AS named
), counted AS (
    SELECT queue, count(*) FILTER (WHERE written) AS rows FROM inserted GROUP BY queue
)
SELECT CASE (SELECT count(*) FROM inserted)
    WHEN (SELECT count(*) FROM m WHERE free) THEN array_agg(acked.id)
    ELSE (count(*) || ' rows and not all of their messages were written: a trigger of the outbox'
        ' leaves some out')::bigint[]
    END,
    (SELECT array_agg(counted.queue ORDER BY counted.queue) FROM counted),
    (SELECT array_agg(counted.rows ORDER BY counted.queue) FROM counted)
FROM acked CROSS JOIN woken
