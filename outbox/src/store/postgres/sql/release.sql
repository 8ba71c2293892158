-- Gives leases back: at once, or (snooze) to be due again after a while.
-- $1 ids. Of each run of them: $2 token, $3 and $4 places of its first and last id,
-- $5 delay in microseconds or NULL, $6 deliveries to take back, $7 time before which
-- it is not due, or NULL.
-- Locks: the rows, run by run, in order of id. Index: the primary key.
WITH written AS (
    UPDATE "outbox" AS o
    SET acquired_token = NULL,
        acquired_at = NULL,
        deliveries_count = greatest(o.deliveries_count - run.uncount, 0),
        next_attempt_at = greatest(run.earliest, coalesce(
            clock_timestamp() + run.delay * interval '1 microsecond', o.next_attempt_at))
    FROM unnest($2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::bigint[], $7::timestamptz[])
        AS run(token, first, last, delay, uncount, earliest)
    WHERE o.id = ANY(($1::bigint[])[run.first:run.last]) AND o.acquired_token = run.token
    RETURNING o.id, run.token
)
SELECT array_agg(id), array_agg(token) FROM written
