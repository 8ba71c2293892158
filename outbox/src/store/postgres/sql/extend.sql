-- Starts leases anew, under the same token or another one.
-- $1 ids, ascending. Of each run of them: $2 token, $3 its first id, $4 token to continue
-- under.
-- Locks: the rows, in order of id. One that somebody else has locked is
-- passed by: waited for, it would keep all others from being extended, though nobody
-- can claim it meanwhile. Index: the primary key; a token is compared as in ack. The columns
-- written stand in no index of ours, so the update is HOT.
WITH mine AS MATERIALIZED (
    SELECT o.id, o.acquired_token AS token,
        ($4::uuid[])[width_bucket(o.id, $3::bigint[])] AS next
    FROM "outbox" AS o
    WHERE o.id = ANY($1::bigint[])
      AND o.acquired_token IS NOT DISTINCT FROM ($2::uuid[])[width_bucket(o.id, $3::bigint[])]
    FOR UPDATE SKIP LOCKED
), written AS (
    UPDATE "outbox" AS o
    SET acquired_at = clock_timestamp(),
        acquired_token = mine.next
    FROM mine
    WHERE o.id = ANY(ARRAY[mine.id]) AND o.acquired_token IS NOT DISTINCT FROM mine.token
    RETURNING o.id
)
SELECT array_agg(id) FROM written
