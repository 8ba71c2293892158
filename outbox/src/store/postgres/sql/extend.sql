-- Starts leases anew, under the same token or another one.
-- $1 ids. Of each run of them: $2 token, $3 and $4 places of its first and last id,
-- $5 token to continue under.
-- Locks: the rows, run by run, in order of id. Index: the primary key; the columns
-- written stand in no index, so the update is HOT.
WITH written AS (
    UPDATE "outbox" AS o
    SET acquired_at = clock_timestamp(),
        acquired_token = run.next
    FROM unnest($2::uuid[], $3::int[], $4::int[], $5::uuid[]) AS run(token, first, last, next)
    WHERE o.id = ANY(($1::bigint[])[run.first:run.last]) AND o.acquired_token = run.token
    RETURNING o.id, run.token
)
SELECT array_agg(id), array_agg(token) FROM written
