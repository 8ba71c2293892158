-- Says where letters are in their lives. $1 to $7 the filter, which has ids.
-- Locks nothing. Index: the primary key.
SELECT l.id, l.status
FROM "outbox_dlq" AS l
WHERE true
-- the filter
