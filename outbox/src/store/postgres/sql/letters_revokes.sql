-- Says what others than the owner may do with a table that was just made, as statements that
-- take it away: default privileges gave it to them.
-- $1 the table. Locks nothing. Index: those of the catalogue.
SELECT DISTINCT format('REVOKE ALL ON %s FROM %s', $1,
    CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END)
FROM pg_class AS c
CROSS JOIN LATERAL aclexplode(c.relacl) AS a
WHERE c.oid = to_regclass($1) AND a.grantee <> c.relowner
