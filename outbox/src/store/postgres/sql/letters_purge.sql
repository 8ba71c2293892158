-- Deletes dead letters, the oldest first.
-- $1 to $7 the filter, see letters_where; $8 and $9 time and id of the letter behind
-- which it begins; $10 how many.
-- Locks: the letters, passing by those that others have locked. Index:
-- "outbox_dlq_status_idx" or "outbox_dlq_open_idx", read in order.
-- In months an id is not unique: where a sequence began again, two letters may have it.
WITH locked AS MATERIALIZED (
    SELECT l.id, l.failed_at
    FROM "outbox_dlq" AS l
    WHERE true
-- the filter
      AND (l.failed_at, l.id) > ($8, $9) -- if after
    ORDER BY l.failed_at, l.id
    LIMIT $10
    FOR UPDATE SKIP LOCKED
)
DELETE FROM "outbox_dlq" AS l
WHERE l.id = ANY(ARRAY(SELECT id FROM locked))
  AND (l.id, l.failed_at) IN (SELECT id, failed_at FROM locked)
RETURNING l.id, l.failed_at
