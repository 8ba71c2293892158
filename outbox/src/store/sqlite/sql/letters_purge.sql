-- Deletes dead letters, the oldest first.
-- ?1 to ?7 the filter, see letters_where; ?8 how many.
-- Index: "outbox_dlq_status_idx" or "outbox_dlq_open_idx", in order; then the primary
-- key.
DELETE FROM "outbox_dlq"
WHERE id IN (
    SELECT l.id
    FROM "outbox_dlq" AS l
    WHERE true
-- the filter
    ORDER BY l.failed_at, l.id
    LIMIT ?8)
