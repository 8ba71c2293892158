-- The sequence behind the ids of a table, and whether it is an identity's; whether the role of
-- this session may take an id of it, the role, and the largest id. What a default draws from, the column need
-- not own. Those of an identity everybody may take who may insert.
-- In braces: the table, as a text. Locks: nothing. Index: those of the catalog.
SELECT format('%I.%I', n.nspname, s.relname) AS name, ids.is_identity,
    ids.is_identity OR has_sequence_privilege(s.oid, 'USAGE, UPDATE') AS may,
    quote_ident(current_user) AS role,
    (SELECT seqmax FROM pg_catalog.pg_sequence WHERE seqrelid = s.oid) AS most
FROM (SELECT a.attidentity <> '' AS is_identity, coalesce(
            (SELECT d.refobjid
             FROM pg_catalog.pg_attrdef AS f
             JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_attrdef'::regclass
                AND d.objid = f.oid AND d.refclassid = 'pg_catalog.pg_class'::regclass
             JOIN pg_catalog.pg_class AS c ON c.oid = d.refobjid AND c.relkind = 'S'
             WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum
             LIMIT 1),
            pg_get_serial_sequence({table}, a.attname::text)::regclass) AS sequence
    FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = to_regclass({table}) AND a.attname = 'id') AS ids
JOIN pg_catalog.pg_class AS s ON s.oid = ids.sequence
JOIN pg_catalog.pg_namespace AS n ON n.oid = s.relnamespace
