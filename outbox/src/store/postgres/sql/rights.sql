-- The rights that the role of this session lacks on columns of a table, and the role.
-- $1 table; of each right on a column: $2 the right, $3 the column. DELETE is of the table.
-- Locks: nothing. Index: those of the catalog. What is granted of the table counts of each column;
-- a table or a column that is not there is told elsewhere.
SELECT needed.may, array_agg(a.attname::text ORDER BY needed.place),
    quote_ident(current_user)
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS needed(may, name, place)
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = to_regclass($1) AND a.attname = needed.name
WHERE NOT a.attisdropped AND NOT CASE needed.may
    WHEN 'DELETE' THEN has_table_privilege(a.attrelid, needed.may)
    ELSE has_column_privilege(a.attrelid, a.attnum, needed.may)
    END
GROUP BY needed.may
ORDER BY min(needed.place)
