-- Says which months the dead-letter table has, the oldest first; the one for letters of
-- no month, which has no bounds, comes last. An error if there is no such table.
-- $1 the table. Locks nothing. Index: those of the catalogue.
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relname::text,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''([^'']+)''[)]'))[1]::timestamptz,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO [(]''([^'']+)''[)]'))[1]::timestamptz
        AS until
FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE i.inhparent = $1::text::regclass
ORDER BY pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT', until NULLS LAST
