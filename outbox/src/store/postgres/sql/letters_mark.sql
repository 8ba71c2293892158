-- Marks open dead letters as resolved or ignored.
-- $1 to $7 the filter, see letters_where; $8 status; $9 note, or NULL to leave it;
-- $10 how many.
-- Locks: the letters, passing by those that others have locked. Index:
-- "outbox_dlq_open_idx", "outbox_dlq_group_idx" or "outbox_dlq_status_idx", in order.
WITH locked AS MATERIALIZED (
    SELECT l.id
    FROM "outbox_dlq" AS l
    WHERE true
-- the filter
    ORDER BY l.failed_at, l.id
    LIMIT $10
    FOR UPDATE SKIP LOCKED
)
UPDATE "outbox_dlq" AS l
SET status = $8, resolved_at = clock_timestamp(), note = coalesce($9, l.note)
WHERE l.id = ANY(ARRAY(SELECT id FROM locked)) AND l.status = 'failed'
