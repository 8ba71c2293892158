-- As insert_batch_queues, with timers of which none is to be moved: DO NOTHING asks for no
-- right to update.
-- $1 to $7 as there, $8 timer names or NULLs.
-- Index: "outbox_timer_id_uq" decides.
WITH inserted AS (
    INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at, timer_id)
    SELECT given.queue, given.payload, given.headers::jsonb, clock_timestamp(),
        coalesce(given.at, clock_timestamp() + given.delay * interval '1 microsecond'),
        given.timer_id
    FROM unnest($1::text[], $2::bytea[], $3::text[], $4::timestamptz[], $5::bigint[], $8::text[])
        WITH ORDINALITY AS given(queue, payload, headers, at, delay, timer_id, place)
    ORDER BY given.place
    ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO NOTHING
    RETURNING id, queue, timer_id
), woken AS MATERIALIZED (
    SELECT count(CASE WHEN pg_try_advisory_lock(named.lock) THEN pg_advisory_unlock(named.lock)
            WHEN $6 IS NULL THEN true
            ELSE pg_notify($6, named.queue) IS NULL END)
    FROM (SELECT queue,
            $7::bigint | (get_byte(sha256(convert_to(queue, 'UTF8')), 0) & 63) AS lock
        FROM (SELECT DISTINCT queue FROM inserted) AS each) AS named
)
SELECT id, queue, timer_id, true FROM inserted CROSS JOIN woken ORDER BY id
