-- Whether row-level security may hide rows of a table from the role of this session, or refuse
-- them: it is active, and there is no policy of all commands that lets everything be, or there is a
-- restrictive one. And the role. $1 the table. Locks: nothing. Index: those of the catalog.
SELECT row_security_active(to_regclass($1)) AND (
        NOT EXISTS (SELECT FROM pg_catalog.pg_policy AS p
            WHERE p.polrelid = to_regclass($1) AND p.polpermissive AND p.polcmd = '*'
                AND pg_get_expr(p.polqual, p.polrelid) = 'true'
                AND coalesce(pg_get_expr(p.polwithcheck, p.polrelid), 'true') = 'true'
                AND EXISTS (SELECT FROM unnest(p.polroles) AS of(role)
                    WHERE of.role = 0 OR pg_has_role(of.role, 'USAGE')))
        OR EXISTS (SELECT FROM pg_catalog.pg_policy AS p
            WHERE p.polrelid = to_regclass($1) AND NOT p.polpermissive)),
    quote_ident(current_user)
