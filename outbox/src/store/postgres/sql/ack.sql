-- Deletes handled rows whose lease still holds, and returns which.
-- $1 ids, ascending. Of each run of them: $2 token, $3 its first id.
-- Locks: the rows, in order of id, because the index is read in the order of the array: two
-- batches cannot deadlock. Index: the primary key. A token is never compared by `=`: that finds
-- no NULL, so a planner that takes the table for empty might as well read Python's index of
-- leased rows, all of it, for each batch.
-- One row comes back, not one a row.
WITH gone AS (
    DELETE FROM "outbox" AS o
    WHERE o.id = ANY($1::bigint[])
      AND o.acquired_token IS NOT DISTINCT FROM ($2::uuid[])[width_bucket(o.id, $3::bigint[])]
    RETURNING o.id
)
SELECT array_agg(id) FROM gone
