-- Whether there are more letters than so many. ?1 so many.
-- Locks nothing. Index: the primary key, read backwards.
SELECT EXISTS (SELECT 1 FROM "outbox_dlq" ORDER BY id DESC LIMIT 1 OFFSET ?1)
