-- Puts failed rows off, one attempt spent, and gives their leases back.
-- $1 ids. Of each run of them: $2 token, $3 and $4 places of its first and last id,
-- $5 delay in microseconds.
-- Locks: the rows, run by run, in order of id. Index: the primary key.
-- The clock is read once a run: the first and the last attempt of a row that failed
-- once are the same.
WITH written AS (
    UPDATE "outbox" AS o
    SET attempts_count = o.attempts_count + 1,
        next_attempt_at = run.due,
        first_attempt_at = coalesce(o.first_attempt_at, run.now),
        last_attempt_at = run.now,
        acquired_token = NULL,
        acquired_at = NULL
    FROM (
        SELECT given.token, given.first, given.last, clock.now,
            clock.now + given.delay * interval '1 microsecond' AS due
        FROM unnest($2::uuid[], $3::int[], $4::int[], $5::bigint[])
            AS given(token, first, last, delay)
        CROSS JOIN LATERAL (SELECT clock_timestamp() AS now) AS clock
    ) AS run
    WHERE o.id = ANY(($1::bigint[])[run.first:run.last]) AND o.acquired_token = run.token
    RETURNING o.id, run.token
)
SELECT array_agg(id), array_agg(token) FROM written
