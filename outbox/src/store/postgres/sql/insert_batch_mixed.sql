-- As insert_batch, for queues and due times of many kinds, and timers.
-- $1 queues, $2 payloads, $3 headers, $4 due times or NULLs, $5 delays in
-- microseconds, $6 channel, $7 start of the sleepers' locks or NULL, $8 timer names or
-- NULLs, $9 whether to extend.
-- Says of each row what insert_timer_extend says.
-- A timer that is not moved is left out, or its conflict would lock a row to no purpose; but
-- not under an older snapshot, see insert_timer_extend.
-- Locks: conflicting rows. Index: "outbox_timer_id_uq" decides.
WITH made AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), m AS MATERIALIZED (
    SELECT given.queue, given.payload, given.headers::jsonb AS headers,
        coalesce(given.at, made.now + given.delay * interval '1 microsecond') AS due,
        given.timer_id, given.extend, given.place
    FROM made CROSS JOIN unnest($1::text[], $2::bytea[], $3::text[], $4::timestamptz[], $5::bigint[],
            $8::text[], $9::bool[])
        WITH ORDINALITY AS given(queue, payload, headers, at, delay, timer_id, extend, place)
), inserted AS (
    INSERT INTO "outbox" AS o (queue, payload, headers, created_at, next_attempt_at, timer_id)
    SELECT m.queue, m.payload, m.headers, made.now, m.due, m.timer_id
    FROM m CROSS JOIN made
    WHERE m.timer_id IS NULL OR current_setting('transaction_isolation') NOT LIKE 'read %'
        OR NOT EXISTS (
        SELECT FROM "outbox" AS held
        WHERE held.queue = m.queue AND held.timer_id = m.timer_id
          AND (held.acquired_token IS NOT NULL OR NOT m.extend))
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
    RETURNING o.id, o.queue, o.timer_id, CASE WHEN o.xmax = 0 THEN true
        WHEN o.created_at = (SELECT now FROM made) THEN false END AS fresh
), woken AS MATERIALIZED (
    SELECT count(CASE WHEN pg_try_advisory_lock(named.lock) THEN pg_advisory_unlock(named.lock)
            WHEN $6 IS NULL THEN true
            ELSE pg_notify($6, named.queue) IS NULL END)
    FROM (SELECT queue,
            $7::bigint | (get_byte(sha256(convert_to(queue, 'UTF8')), 0) & 63) AS lock
        FROM (SELECT DISTINCT queue FROM inserted) AS each) AS named
)
SELECT id, queue, timer_id, fresh FROM inserted CROSS JOIN woken ORDER BY id
