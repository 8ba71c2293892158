-- The sequence behind the ids of a table, where the role of this session may not take one of it,
-- and the role. $1 table. Those of an identity everybody may take who may insert.
-- Locks: nothing. Index: those of the catalog.
SELECT pg_get_serial_sequence($1, a.attname::text), quote_ident(current_user)
FROM pg_catalog.pg_attribute AS a
WHERE a.attrelid = to_regclass($1) AND a.attname = 'id' AND a.attidentity = ''
  AND NOT has_sequence_privilege(pg_get_serial_sequence($1, a.attname::text), 'USAGE, UPDATE')
