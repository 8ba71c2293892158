-- Starts leases anew, under the same token or another one.
-- $1 ids. Of each run of them: $2 token, $3 and $4 places of its first and last id,
-- $5 token to continue under.
-- Locks: the rows, run by run, in order of id. One that somebody else has locked is
-- passed by: waited for, it would keep all others from being extended, though nobody
-- can claim it meanwhile. Index: the primary key; the columns written stand in no index,
-- so the update is HOT.
WITH mine AS MATERIALIZED (
    SELECT o.id, run.token, run.next
    FROM unnest($2::uuid[], $3::int[], $4::int[], $5::uuid[]) AS run(token, first, last, next)
    CROSS JOIN LATERAL (
        SELECT o.id
        FROM "outbox" AS o
        WHERE o.id = ANY(($1::bigint[])[run.first:run.last]) AND o.acquired_token = run.token
        FOR UPDATE SKIP LOCKED
    ) AS o
), written AS (
    UPDATE "outbox" AS o
    SET acquired_at = clock_timestamp(),
        acquired_token = mine.next
    FROM mine
    WHERE o.id = ANY(ARRAY[mine.id]) AND o.acquired_token = mine.token
    RETURNING o.id, mine.token
)
SELECT array_agg(id), array_agg(token) FROM written
