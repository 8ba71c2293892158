-- Counts dead letters. $1 to $7 the filter, see letters_where.
-- Locks nothing. Index: as letters_page; it reads every entry that it counts.
SELECT count(*)
FROM "outbox_dlq" AS l
WHERE true
-- the filter
