-- Deletes handled rows whose lease still holds, and returns which.
-- $1 ids. Of each run of them: $2 token, $3 and $4 places of its first and last id.
-- Locks: the rows, run by run, in order of id, because the index is read in the order
-- of the sorted array: two batches cannot deadlock. Index: the primary key.
-- IS TRUE keeps the token a filter of that scan: as a join the table may be read first.
-- One row comes back, not one a row.
WITH gone AS (
    DELETE FROM "outbox" AS o
    USING unnest($2::uuid[], $3::int[], $4::int[]) AS run(token, first, last)
    WHERE o.id = ANY(($1::bigint[])[run.first:run.last])
      AND (o.acquired_token = run.token) IS TRUE
    RETURNING o.id, run.token
)
SELECT array_agg(id), array_agg(token) FROM gone
