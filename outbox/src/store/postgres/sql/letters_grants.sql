-- Says what was granted on the dead-letter table, as statements that grant it again.
-- $1 the table. Locks nothing. Index: those of the catalogue.
WITH held AS (
    SELECT a.grantee, a.privilege_type, a.is_grantable, NULL::name AS attname
    FROM pg_class AS c
    CROSS JOIN LATERAL aclexplode(c.relacl) AS a
    WHERE c.oid = to_regclass($1) AND a.grantee <> c.relowner
    UNION ALL
    SELECT a.grantee, a.privilege_type, a.is_grantable, t.attname
    FROM pg_attribute AS t
    CROSS JOIN LATERAL aclexplode(t.attacl) AS a
    WHERE t.attrelid = to_regclass($1) AND NOT t.attisdropped
)
SELECT format('GRANT %s%s ON %s TO %s%s', privilege_type,
    CASE WHEN attname IS NULL THEN '' ELSE format(' (%I)', attname) END, $1,
    CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
    CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
FROM held
