-- Deletes handled rows whose lease still holds, and publishes what their handlers
-- returned: a row whose lease is lost publishes nothing.
-- $1 ids, $2 tokens, in pairs. Of each message: $3 and $4 id and token of the row
-- it is published for, $5 queue, $6 payload, $7 headers, $8 due time or NULL,
-- $9 delay in microseconds, $10 timer name or NULL, $11 whether to extend.
-- $12 channel, $13 lock of the sleepers or NULL.
-- Locks: the rows, in order of id; rows of conflicting timers.
-- Index: the primary key; "outbox_timer_id_uq" decides on timers.
WITH mine AS MATERIALIZED (
    SELECT o.id, o.acquired_token AS token
    FROM unnest($1::bigint[], $2::uuid[]) AS settled(id, token)
    JOIN "outbox" AS o ON o.id = ANY(ARRAY[settled.id]) AND o.acquired_token = settled.token
    ORDER BY settled.id
    FOR UPDATE OF o
), acked AS (
    DELETE FROM "outbox" AS o
    USING mine
    WHERE o.id = ANY(ARRAY[mine.id]) AND o.acquired_token = mine.token
    RETURNING mine.id, mine.token
), m AS MATERIALIZED (
    SELECT given.queue, given.payload, given.headers::jsonb AS headers,
        coalesce(given.at, clock_timestamp() + given.delay * interval '1 microsecond') AS due,
        given.timer_id, given.extend, given.place
    FROM unnest($3::bigint[], $4::uuid[], $5::text[], $6::bytea[], $7::text[],
            $8::timestamptz[], $9::bigint[], $10::text[], $11::bool[])
        WITH ORDINALITY
        AS given(id, token, queue, payload, headers, at, delay, timer_id, extend, place)
    JOIN acked ON acked.id = given.id AND acked.token = given.token
), inserted AS (
    INSERT INTO "outbox" AS o (queue, payload, headers, created_at, next_attempt_at, timer_id)
    SELECT m.queue, m.payload, m.headers, clock_timestamp(), m.due, m.timer_id
    FROM m
    ORDER BY m.place
    ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO UPDATE
    SET (next_attempt_at, payload, headers, attempts_count, first_attempt_at, last_attempt_at) = (
        SELECT excluded.next_attempt_at, excluded.payload, excluded.headers, 0,
            NULL::timestamptz, NULL::timestamptz
        WHERE excluded.next_attempt_at > o.next_attempt_at
        UNION ALL
        SELECT o.next_attempt_at, o.payload, o.headers, o.attempts_count,
            o.first_attempt_at, o.last_attempt_at
        WHERE excluded.next_attempt_at <= o.next_attempt_at)
    WHERE o.acquired_token IS NULL
      AND EXISTS (SELECT FROM m WHERE m.queue = o.queue AND m.timer_id = o.timer_id AND m.extend)
    RETURNING o.queue
), woken AS MATERIALIZED (
    SELECT count(CASE WHEN pg_try_advisory_lock(named.lock) THEN pg_advisory_unlock(named.lock)
            ELSE pg_notify($12, named.queue) IS NULL END)
    FROM (SELECT DISTINCT queue, hashtextextended($13, hashtext(queue) & 63) AS lock
        FROM inserted) AS named
)
SELECT array_agg(acked.id), array_agg(acked.token) FROM acked CROSS JOIN woken
