-- Who clears dead rows of the table $1 away, and how many there are.
-- Locks nothing. Reads a catalog and statistics, not the table.
SELECT current_setting('autovacuum')::bool, current_setting('track_counts')::bool,
    pg_catalog.pg_has_role(relowner, 'USAGE'), pg_catalog.pg_get_userbyid(relowner)::text,
    pg_catalog.pg_stat_get_live_tuples(oid), pg_catalog.pg_stat_get_dead_tuples(oid)
FROM pg_catalog.pg_class
WHERE oid = to_regclass($1)
