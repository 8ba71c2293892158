-- Marks open dead letters as resolved or ignored.
-- $1 to $7 the filter, see letters_where; $8 and $9 time and id of the letter behind
-- which it begins; $10 status; $11 note, or NULL to leave it; $12 how many.
-- Locks: the letters, passing by those that others have locked. Index:
-- "outbox_dlq_open_idx", "outbox_dlq_group_idx" or "outbox_dlq_status_idx", in order.
-- In months an id is not unique, as in letters_purge.
WITH locked AS MATERIALIZED (
    SELECT l.id, l.failed_at
    FROM "outbox_dlq" AS l
    WHERE true
-- the filter
      AND (l.failed_at, l.id) > ($8, $9) -- if after
    ORDER BY l.failed_at, l.id
    LIMIT $12
    FOR UPDATE SKIP LOCKED
)
UPDATE "outbox_dlq" AS l
SET status = $10, resolved_at = clock_timestamp(), note = coalesce($11, l.note)
WHERE l.id = ANY(ARRAY(SELECT id FROM locked)) AND l.status = 'failed'
  AND (l.id, l.failed_at) IN (SELECT id, failed_at FROM locked)
RETURNING l.id, l.failed_at
