-- Gives dead letters their fingerprints. $1 ids, $2 when they failed, $3 a fingerprint each.
-- Two letters of one id are two: a sequence may have begun again.
-- Locks: the letters, in order of id, passing by those that others have locked.
-- Index: the primary key.
WITH given AS MATERIALIZED (
    SELECT pair.id, pair.failed_at, pair.fingerprint
    FROM unnest($1::bigint[], $2::timestamptz[], $3::text[]) AS pair(id, failed_at, fingerprint)
), locked AS MATERIALIZED (
    SELECT l.id
    FROM "outbox_dlq" AS l
    WHERE l.id = ANY($1) AND l.fingerprint IS NULL
    ORDER BY l.id
    FOR UPDATE SKIP LOCKED
)
UPDATE "outbox_dlq" AS l
SET fingerprint = given.fingerprint
FROM given
WHERE l.id = ANY(ARRAY(SELECT id FROM locked)) AND l.id = given.id AND l.fingerprint IS NULL
  AND (l.failed_at = given.failed_at OR NOT isfinite(l.failed_at))
