-- Whether row-level security may hide rows of a table from the role of this session, or refuse
-- them: it is active, and of some command there is no policy that lets everything be, or there is
-- a restrictive one. Policies of other roles count nothing. And the role. A policy without USING
-- permits no row; one without WITH CHECK has USING for it.
-- $1 the table. Locks: nothing, and waits where somebody has locked a table with policies, whose
-- texts name its columns. Index: those of the catalog.
WITH policy AS (
    SELECT p.polpermissive AS permits, p.polcmd AS command,
        pg_get_expr(p.polqual, p.polrelid) = 'true' AS shows,
        coalesce(pg_get_expr(p.polwithcheck, p.polrelid), pg_get_expr(p.polqual, p.polrelid)) = 'true'
            AS takes
    FROM pg_catalog.pg_policy AS p
    WHERE p.polrelid = to_regclass($1)
      AND EXISTS (SELECT FROM unnest(p.polroles) AS of(role)
        WHERE of.role = 0 OR pg_has_role(of.role, 'USAGE'))
)
SELECT row_security_active(to_regclass($1)) AND (
        -- SELECT, INSERT, UPDATE and DELETE, as the catalog calls them.
        EXISTS (SELECT FROM unnest('{r,a,w,d}'::"char"[]) AS each(command)
            WHERE NOT EXISTS (SELECT FROM policy
                WHERE policy.permits AND policy.command IN (each.command, '*')
                  AND (policy.shows OR each.command = 'a')
                  AND (policy.takes OR each.command IN ('r', 'd'))))
        OR EXISTS (SELECT FROM policy WHERE NOT policy.permits)),
    quote_ident(current_user)
