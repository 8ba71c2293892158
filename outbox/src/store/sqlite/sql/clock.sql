-- The database's time.
-- Locks nothing. Reads no table.
SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)
