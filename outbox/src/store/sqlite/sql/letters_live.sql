-- Which of these rows are still in the outbox. ?1 ids, a JSON array.
-- Locks nothing. Index: the primary key.
SELECT o.id
FROM json_each(?1) AS given
CROSS JOIN "outbox" AS o ON o.id = given.value
