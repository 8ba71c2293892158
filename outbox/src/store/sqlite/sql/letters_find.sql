-- Finds open dead letters to put back, the oldest first.
-- ?1 to ?7 the filter, see letters_where; ?8 and ?9 time and id of the letter behind
-- which it begins; ?10 how many.
-- In a BEGIN IMMEDIATE transaction with letters_insert and letters_link.
-- Index: "outbox_dlq_open_idx", "outbox_dlq_group_idx" or "outbox_dlq_status_idx".
SELECT l.id, l.failed_at, length(l.payload), l.timer_id IS NOT NULL
FROM "outbox_dlq" AS l
WHERE true
-- the filter
  AND (l.failed_at, l.id) > (?8, ?9) -- if after
ORDER BY l.failed_at, l.id
LIMIT ?10
