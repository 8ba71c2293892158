-- Marks open dead letters as resolved or ignored.
-- ?1 to ?7 the filter, see letters_where; ?8 status; ?9 note, or NULL to leave it;
-- ?10 how many.
-- Index: "outbox_dlq_open_idx", "outbox_dlq_group_idx" or "outbox_dlq_status_idx", in
-- order; then the primary key.
UPDATE "outbox_dlq"
SET status = ?8, resolved_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    note = coalesce(?9, note)
WHERE id IN (
    SELECT l.id
    FROM "outbox_dlq" AS l
    WHERE true
-- the filter
    ORDER BY l.failed_at, l.id
    LIMIT ?10)
