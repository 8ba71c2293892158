-- The database's time. The function is unqualified, so that a test can put another in its place.
-- Locks nothing. Reads no table.
SELECT clock_timestamp()
