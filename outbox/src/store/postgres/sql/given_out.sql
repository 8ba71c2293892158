-- The database's time, and the last id that the table gave out: 0 if none, NULL if it
-- cannot be known.
-- $1 the table, quoted. Locks nothing. Reads no row of the table.
SELECT clock_timestamp(), CASE WHEN has_sequence_privilege(ids.name, 'USAGE, SELECT')
    THEN coalesce(pg_sequence_last_value(ids.name::regclass), 0) END
FROM (SELECT pg_get_serial_sequence($1, 'id') AS name) AS ids
