-- How many rows there are, and the last id. Index: the smallest there is, all of it.
SELECT count(*), coalesce((SELECT max(id) FROM "outbox"), 0) FROM "outbox"
