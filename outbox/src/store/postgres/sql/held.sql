-- Which leases are there, whoever has their rows locked.
-- $1 ids. Of each run of them: $2 token, $3 and $4 places of its first and last id.
-- Index: the primary key.
SELECT array_agg(held.id), array_agg(run.token)
FROM unnest($2::uuid[], $3::int[], $4::int[]) AS run(token, first, last)
CROSS JOIN LATERAL (
    SELECT o.id
    FROM "outbox" AS o
    WHERE o.id = ANY(($1::bigint[])[run.first:run.last]) AND o.acquired_token = run.token
) AS held
