-- Schemas of the path in which everybody may make functions and operators.
-- Locks nothing. Reads a catalog.
SELECT pg_catalog.quote_ident(n.nspname::text)
FROM pg_catalog.pg_namespace AS n
WHERE n.nspname::text = ANY(pg_catalog.current_schemas(false)::text[])
  AND EXISTS (
    SELECT FROM pg_catalog.aclexplode(coalesce(n.nspacl, pg_catalog.acldefault('n', n.nspowner))) AS a
    WHERE a.grantee = 0 AND a.privilege_type = 'CREATE')
ORDER BY n.nspname::text
