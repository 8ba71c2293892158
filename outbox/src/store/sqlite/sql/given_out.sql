-- The database's time, and the last id that the table gave out: NULL if none.
-- ?1 the table. Locks nothing. Reads no row of the table.
SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    (SELECT seq FROM sqlite_sequence WHERE name = ?1 COLLATE NOCASE)
