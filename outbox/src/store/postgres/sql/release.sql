-- Gives leases back: at once, or (snooze) to be due again after a while.
-- $1 ids, $2 tokens, $3 delays in microseconds or NULL, $4 deliveries to take back,
-- $5 times before which they are not due, or NULL.
-- Locks: the rows, in order of id. Index: the primary key.
WITH mine AS MATERIALIZED (
    SELECT o.id, o.acquired_token AS token, settled.delay, settled.uncount, settled.first
    FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::bigint[], $5::timestamptz[])
        AS settled(id, token, delay, uncount, first)
    JOIN "outbox" AS o ON o.id = ANY(ARRAY[settled.id]) AND o.acquired_token = settled.token
    ORDER BY settled.id
    FOR UPDATE OF o
), written AS (
    UPDATE "outbox" AS o
    SET acquired_token = NULL,
        acquired_at = NULL,
        deliveries_count = greatest(o.deliveries_count - mine.uncount, 0),
        next_attempt_at = greatest(mine.first, coalesce(
            clock_timestamp() + mine.delay * interval '1 microsecond', o.next_attempt_at))
    FROM mine
    WHERE o.id = ANY(ARRAY[mine.id]) AND o.acquired_token = mine.token
    RETURNING mine.id, mine.token
)
SELECT array_agg(id), array_agg(token) FROM written
