-- Which leases are there, whoever has their rows locked.
-- $1 ids, ascending. Of each run of them: $2 token, $3 its first id.
-- Index: the primary key.
SELECT array_agg(o.id)
FROM "outbox" AS o
WHERE o.id = ANY($1::bigint[])
  AND o.acquired_token = ($2::uuid[])[width_bucket(o.id, $3::bigint[])]
