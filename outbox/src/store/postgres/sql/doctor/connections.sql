-- How many connections the server allows and has; limits are NULL where there are none.
-- Locks nothing. Reads settings, statistics and catalogs, no table.
SELECT current_setting('max_connections')::bigint
        - current_setting('superuser_reserved_connections')::bigint
        - coalesce(current_setting('reserved_connections', true), '0')::bigint,
    (SELECT coalesce(sum(numbackends), 0)::bigint FROM pg_catalog.pg_stat_database),
    least(
        (SELECT nullif(rolconnlimit, -1)::bigint FROM pg_catalog.pg_roles
         WHERE rolname = session_user),
        (SELECT nullif(datconnlimit, -1)::bigint FROM pg_catalog.pg_database
         WHERE datname = current_database()))
