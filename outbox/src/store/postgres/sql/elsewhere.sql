-- Tables of this name that a statement of this session does not find, in the words of a message: in
-- schemas that are not in its search path, or that its role may not use.
-- $1 the table, quoted; with a schema there are none. Locks: nothing. Index: those of the catalog.
SELECT format('; there is one in the schema %I, which ', n.nspname) || CASE
        WHEN has_schema_privilege(n.oid, 'USAGE')
            THEN 'is not in the search path (`OUTBOX_SCHEMA` or `TableNames::in_schema` names a schema)'
        ELSE format('%I may not use (`GRANT USAGE ON SCHEMA %I TO %1$I`)', current_user, n.nspname)
    END
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE $1 = '"' || replace(c.relname, '"', '""') || '"' AND c.relkind IN ('r', 'p')
ORDER BY n.nspname
LIMIT 3
