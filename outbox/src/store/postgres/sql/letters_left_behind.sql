-- Says what hangs on the dead-letter table and would stay with its old rows.
-- $1 the table, $2 the names of our indexes. Locks nothing. Index: those of the catalogue.
SELECT 'the trigger ' || quote_ident(tgname)
FROM pg_trigger
WHERE tgrelid = to_regclass($1) AND NOT tgisinternal
UNION ALL
SELECT 'the foreign key ' || quote_ident(conname) || ' of ' || conrelid::regclass::text
FROM pg_constraint
WHERE contype = 'f' AND (confrelid = to_regclass($1) OR conrelid = to_regclass($1))
UNION ALL
SELECT DISTINCT 'the view ' || r.ev_class::regclass::text
FROM pg_depend AS d
JOIN pg_rewrite AS r ON r.oid = d.objid
WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = to_regclass($1)
  AND r.ev_class <> to_regclass($1)
UNION ALL
SELECT 'the rule ' || quote_ident(rulename)
FROM pg_rewrite
WHERE ev_class = to_regclass($1)
UNION ALL
SELECT DISTINCT 'the function ' || d.objid::regprocedure::text
FROM pg_depend AS d
WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_class'::regclass
  AND d.refobjid = to_regclass($1)
UNION ALL
-- One that takes a letter or returns letters.
SELECT DISTINCT 'the function ' || d.objid::regprocedure::text
FROM pg_depend AS d
JOIN pg_type AS t ON t.oid = d.refobjid
WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_type'::regclass
  AND to_regclass($1) IN (t.typrelid, (SELECT typrelid FROM pg_type WHERE oid = t.typelem))
UNION ALL
SELECT DISTINCT 'the column ' || quote_ident(a.attname) || ' of ' || a.attrelid::regclass::text
FROM pg_depend AS d
JOIN pg_type AS t ON t.oid = d.refobjid
JOIN pg_attribute AS a ON a.attrelid = d.objid AND a.attnum = d.objsubid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_type'::regclass
  AND to_regclass($1) IN (t.typrelid, (SELECT typrelid FROM pg_type WHERE oid = t.typelem))
UNION ALL
SELECT DISTINCT 'the policy ' || quote_ident(p.polname) || ' of ' || p.polrelid::regclass::text
FROM pg_depend AS d
JOIN pg_policy AS p ON p.oid = d.objid
WHERE d.classid = 'pg_policy'::regclass AND d.refclassid = 'pg_class'::regclass
  AND d.refobjid = to_regclass($1) AND p.polrelid <> to_regclass($1)
UNION ALL
SELECT 'its row-level security'
FROM pg_class AS c
WHERE c.oid = to_regclass($1)
  AND (c.relrowsecurity OR EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid))
UNION ALL
SELECT 'its tablespace'
FROM pg_class
WHERE oid = to_regclass($1) AND reltablespace <> 0
UNION ALL
SELECT 'the settings of its storage'
FROM pg_class
WHERE oid = to_regclass($1) AND reloptions IS NOT NULL
UNION ALL
SELECT 'its place in the publication ' || quote_ident(p.pubname)
FROM pg_publication_rel AS r
JOIN pg_publication AS p ON p.oid = r.prpubid
WHERE r.prrelid = to_regclass($1)
UNION ALL
SELECT CASE WHEN attgenerated <> '' THEN 'the generated column ' ELSE 'the identity of the column ' END
    || quote_ident(attname)
FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
  AND (attgenerated <> '' OR attidentity <> '' AND attname <> 'id')
UNION ALL
SELECT 'the index ' || quote_ident(c.relname)
FROM pg_index AS x
JOIN pg_class AS c ON c.oid = x.indexrelid
WHERE x.indrelid = to_regclass($1) AND NOT x.indisprimary AND c.relname <> ALL ($2)
UNION ALL
SELECT 'the statistics ' || quote_ident(stxname)
FROM pg_statistic_ext
WHERE stxrelid = to_regclass($1)
UNION ALL
SELECT 'its replica identity'
FROM pg_class
WHERE oid = to_regclass($1) AND relreplident <> 'd'
