-- How many connections the server allows and has; limits are NULL where there are none.
-- Locks nothing. Reads settings, statistics and catalogs, no table.
SELECT current_setting('max_connections')::bigint
        - current_setting('superuser_reserved_connections')::bigint
        - coalesce(current_setting('reserved_connections', true), '0')::bigint,
    (SELECT coalesce(sum(numbackends), 0)::bigint FROM pg_catalog.pg_stat_database),
    -- The server holds superusers to neither.
    (SELECT least(
        nullif(r.rolconnlimit, -1),
        (SELECT nullif(datconnlimit, -1) FROM pg_catalog.pg_database
         WHERE datname = current_database()))::bigint
     FROM pg_catalog.pg_roles AS r
     WHERE r.rolname = session_user AND NOT r.rolsuper)
