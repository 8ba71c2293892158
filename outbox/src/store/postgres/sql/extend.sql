-- Starts leases anew, under the same token or another one.
-- $1 ids, $2 tokens, $3 tokens to continue under, in triples.
-- Locks: the rows, in order of id. Index: the primary key; the columns written
-- stand in no index, so the update is HOT.
WITH mine AS MATERIALIZED (
    SELECT o.id, o.acquired_token AS token, held.next
    FROM unnest($1::bigint[], $2::uuid[], $3::uuid[]) AS held(id, token, next)
    JOIN "outbox" AS o ON o.id = ANY(ARRAY[held.id]) AND o.acquired_token = held.token
    ORDER BY held.id
    FOR UPDATE OF o
), written AS (
    UPDATE "outbox" AS o
    SET acquired_at = clock_timestamp(),
        acquired_token = mine.next
    FROM mine
    WHERE o.id = ANY(ARRAY[mine.id]) AND o.acquired_token = mine.token
    RETURNING mine.id, mine.token
)
SELECT array_agg(id), array_agg(token) FROM written
