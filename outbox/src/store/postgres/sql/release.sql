-- Gives leases back: at once, or (snooze) to be due again after a while.
-- $1 ids, ascending. Of each run of them: $2 token, $3 its first id, $4 delay in
-- microseconds or NULL, $5 deliveries to take back, $6 time before which it is not due, or
-- NULL.
-- Locks: the rows, in order of id. Index: the primary key; a token is compared as in ack.
WITH written AS (
    UPDATE "outbox" AS o
    SET acquired_token = NULL,
        acquired_at = NULL,
        deliveries_count =
            greatest(o.deliveries_count - ($5::bigint[])[width_bucket(o.id, $3::bigint[])], 0),
        next_attempt_at = greatest(
            ($6::timestamptz[])[width_bucket(o.id, $3::bigint[])],
            coalesce(
                clock_timestamp()
                    + ($4::bigint[])[width_bucket(o.id, $3::bigint[])] * interval '1 microsecond',
                o.next_attempt_at))
    WHERE o.id = ANY($1::bigint[])
      AND o.acquired_token IS NOT DISTINCT FROM ($2::uuid[])[width_bucket(o.id, $3::bigint[])]
    RETURNING o.id
)
SELECT array_agg(id) FROM written
