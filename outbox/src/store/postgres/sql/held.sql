-- Which leases are there, whoever has their rows locked.
-- $1 ids, ascending. Of each run of them: $2 token, $3 its first id.
-- Index: the primary key; a token is compared as in ack.
SELECT array_agg(o.id)
FROM "outbox" AS o
WHERE o.id = ANY($1::bigint[])
  AND o.acquired_token IS NOT DISTINCT FROM ($2::uuid[])[width_bucket(o.id, $3::bigint[])]
