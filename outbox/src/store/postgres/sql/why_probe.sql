-- Whether a row can be locked now; for a transaction that is rolled back at once.
-- $1 id. Locks: FOR UPDATE on the row, unless somebody has it. Index: the primary key.
SELECT o.id FROM "outbox" AS o WHERE o.id = $1 FOR UPDATE OF o SKIP LOCKED
