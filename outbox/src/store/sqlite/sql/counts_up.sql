-- The database's time, and how the table was made, which says whether it keeps the last id
-- that it gave out: where no table of the file does, there is none of sequences to ask.
-- ?1 the table. Locks nothing. Reads no row of the table.
SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    (SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?1 COLLATE NOCASE)
