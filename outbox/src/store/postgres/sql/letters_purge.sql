-- Deletes dead letters, the oldest first.
-- $1 to $7 the filter, see letters_where; $8 how many.
-- Locks: the letters, passing by those that others have locked. Index:
-- "outbox_dlq_status_idx" or "outbox_dlq_open_idx", read in order.
WITH locked AS MATERIALIZED (
    SELECT l.id
    FROM "outbox_dlq" AS l
    WHERE true
-- the filter
    ORDER BY l.failed_at, l.id
    LIMIT $8
    FOR UPDATE SKIP LOCKED
)
DELETE FROM "outbox_dlq"
WHERE id = ANY(ARRAY(SELECT id FROM locked))
