-- Whether there are more letters than so many. ?1 so many.
-- Locks nothing. Index: the primary key, read backwards.
SELECT count(*) > 0
FROM (SELECT id FROM "outbox_dlq" WHERE id < 9223372036854775807 ORDER BY id DESC LIMIT 1 OFFSET ?1)
