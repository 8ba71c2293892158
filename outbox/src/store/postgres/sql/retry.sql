-- Puts failed rows off, one attempt spent, and gives their leases back.
-- $1 ids, ascending. Of each run of them: $2 token, $3 its first id, $4 delay in microseconds.
-- Locks: the rows, in order of id. Index: the primary key; a token is compared as in ack.
-- The clock is read once: the first and the last attempt of a row that failed once are the
-- same.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), written AS (
    UPDATE "outbox" AS o
    SET attempts_count = least(greatest(o.attempts_count, 0), 9223372036854775806) + 1,
        next_attempt_at = (SELECT now FROM clock)
            + ($4::bigint[])[width_bucket(o.id, $3::bigint[])] * interval '1 microsecond',
        first_attempt_at = coalesce(o.first_attempt_at, (SELECT now FROM clock)),
        last_attempt_at = (SELECT now FROM clock),
        acquired_token = NULL,
        acquired_at = NULL
    WHERE o.id = ANY($1::bigint[])
      AND o.acquired_token IS NOT DISTINCT FROM ($2::uuid[])[width_bucket(o.id, $3::bigint[])]
    RETURNING o.id
)
SELECT array_agg(id) FROM written
