-- Deletes dead letters, the oldest first.
-- ?1 to ?7 the filter, see letters_where; ?8 and ?9 time and id of the letter behind
-- which it begins; ?10 how many.
-- Index: "outbox_dlq_status_idx" or "outbox_dlq_open_idx", in order; then the primary
-- key.
DELETE FROM "outbox_dlq"
WHERE id IN (
    SELECT l.id
    FROM "outbox_dlq" AS l
    WHERE true
-- the filter
      AND (l.failed_at, l.id) > (?8, ?9) -- if after
    ORDER BY l.failed_at, l.id
    LIMIT ?10)
RETURNING id, failed_at
