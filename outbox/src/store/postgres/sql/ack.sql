-- Deletes handled rows whose lease still holds, and returns which.
-- $1 ids, $2 tokens, in pairs.
-- Locks: the rows, in order of id, because the index is read in the order of the
-- sorted array: two batches cannot deadlock. Index: the primary key.
-- IS TRUE keeps the pairs a filter of that scan: as a join they may be read in
-- another order, or with the whole table. One row comes back, not one a row.
WITH gone AS (
    DELETE FROM "outbox" AS o
    WHERE o.id = ANY($1::bigint[])
      AND ((o.id, o.acquired_token) IN (
          SELECT settled.id, settled.token
          FROM unnest($1::bigint[], $2::uuid[]) AS settled(id, token))) IS TRUE
    RETURNING o.id, o.acquired_token AS token
)
SELECT array_agg(id), array_agg(token) FROM gone
