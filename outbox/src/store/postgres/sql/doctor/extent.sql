-- How many rows there are, and the last id. Locks nothing.
-- Index: the primary key, all of it.
SELECT count(*), coalesce(max(id), 0) FROM "outbox"
