-- As insert_batch, for queues and due times of many kinds. It asks for the rights to insert
-- and, for RETURNING, to read id and queue; but for none to update, as ON CONFLICT .. DO UPDATE
-- of insert_batch_mixed does.
-- $1 queues, $2 payloads, $3 headers, $4 due times or NULLs, $5 delays in
-- microseconds, $6 channel, $7 start of the sleepers' locks or NULL.
-- Ids are drawn in the order of the batch.
WITH inserted AS (
    INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at)
    SELECT given.queue, given.payload, given.headers::jsonb, clock_timestamp(),
        coalesce(given.at, clock_timestamp() + given.delay * interval '1 microsecond')
    FROM unnest($1::text[], $2::bytea[], $3::text[], $4::timestamptz[], $5::bigint[])
        WITH ORDINALITY AS given(queue, payload, headers, at, delay, place)
    ORDER BY given.place
    RETURNING id, queue
), woken AS MATERIALIZED (
    SELECT count(CASE WHEN pg_try_advisory_lock(named.lock) THEN pg_advisory_unlock(named.lock)
            WHEN $6 IS NULL THEN true
            ELSE pg_notify($6, named.queue) IS NULL END)
    FROM (SELECT queue,
            $7::bigint | (get_byte(sha256(convert_to(queue, 'UTF8')), 0) & 63) AS lock
        FROM (SELECT DISTINCT queue FROM inserted) AS each) AS named
)
SELECT array_agg(inserted.id) FROM inserted CROSS JOIN woken
