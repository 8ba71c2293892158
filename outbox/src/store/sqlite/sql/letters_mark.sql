-- Marks open dead letters as resolved or ignored.
-- ?1 to ?7 the filter, see letters_where; ?8 and ?9 time and id of the letter behind
-- which it begins; ?10 status; ?11 note, or NULL to leave it; ?12 how many.
-- Index: "outbox_dlq_open_idx", "outbox_dlq_group_idx" or "outbox_dlq_status_idx", in
-- order; then the primary key.
UPDATE "outbox_dlq"
SET status = ?10, resolved_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    note = coalesce(?11, note)
WHERE id IN (
    SELECT l.id
    FROM "outbox_dlq" AS l
    WHERE true
-- the filter
      AND (l.failed_at, l.id) > (?8, ?9) -- if after
    ORDER BY l.failed_at, l.id
    LIMIT ?12)
RETURNING id, failed_at
