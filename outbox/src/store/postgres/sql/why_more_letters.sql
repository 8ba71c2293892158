-- Whether there are more letters than so many. $1 so many.
-- Locks nothing. Index: the primary key, read backwards.
SELECT EXISTS (SELECT FROM "outbox_dlq" AS d ORDER BY d.id DESC OFFSET $1 LIMIT 1)
