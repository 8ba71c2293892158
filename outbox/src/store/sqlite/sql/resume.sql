-- Ends a pause; says whether there was one. The commit wakes everybody.
-- ?1 queue. Locks: the file. Index: the primary key.
DELETE FROM "outbox_paused" WHERE queue = ?1 RETURNING queue
