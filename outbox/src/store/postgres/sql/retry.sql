-- Puts failed rows off, one attempt spent, and gives their leases back.
-- $1 ids, $2 tokens, $3 delays in microseconds, in triples.
-- Locks: the rows, in order of id. Index: the primary key.
-- The clock is read once a row: the first and the last attempt of a row that
-- failed once are the same.
WITH mine AS MATERIALIZED (
    SELECT o.id, o.acquired_token AS token, settled.delay, clock_timestamp() AS now
    FROM unnest($1::bigint[], $2::uuid[], $3::bigint[]) AS settled(id, token, delay)
    JOIN "outbox" AS o ON o.id = ANY(ARRAY[settled.id]) AND o.acquired_token = settled.token
    ORDER BY settled.id
    FOR UPDATE OF o
), written AS (
    UPDATE "outbox" AS o
    SET attempts_count = o.attempts_count + 1,
        next_attempt_at = mine.now + mine.delay * interval '1 microsecond',
        first_attempt_at = coalesce(o.first_attempt_at, mine.now),
        last_attempt_at = mine.now,
        acquired_token = NULL,
        acquired_at = NULL
    FROM mine
    WHERE o.id = ANY(ARRAY[mine.id]) AND o.acquired_token = mine.token
    RETURNING mine.id, mine.token
)
SELECT array_agg(id), array_agg(token) FROM written
