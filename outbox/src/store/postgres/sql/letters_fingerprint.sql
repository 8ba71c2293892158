-- Gives dead letters their fingerprints. $1 ids, $2 when they failed, $3 a fingerprint each.
-- Two letters of one id are two: a sequence may have begun again. Times that are none, or of the
-- year 294247 and later, did not come here as they are.
-- Locks: the letters, in order of id. It waits for those that others have locked: without a
-- fingerprint they would be left out. Index: the primary key.
WITH given AS MATERIALIZED (
    SELECT pair.id, pair.failed_at, pair.fingerprint
    FROM unnest($1::bigint[], $2::timestamptz[], $3::text[]) AS pair(id, failed_at, fingerprint)
), locked AS MATERIALIZED (
    SELECT l.id
    FROM "outbox_dlq" AS l
    WHERE l.id = ANY($1) AND l.fingerprint IS NULL
    ORDER BY l.id
    FOR UPDATE
)
UPDATE "outbox_dlq" AS l
SET fingerprint = given.fingerprint
FROM given
WHERE l.id = ANY(ARRAY(SELECT id FROM locked)) AND l.id = given.id AND l.fingerprint IS NULL
  AND (l.failed_at = given.failed_at OR NOT isfinite(l.failed_at)
    OR l.failed_at >= '294247-01-01 00:00:00+00')
