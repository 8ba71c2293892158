-- Which of these rows are still in the outbox. $1 ids.
-- Locks nothing. Index: the primary key.
SELECT o.id FROM "outbox" AS o WHERE o.id = ANY($1)
