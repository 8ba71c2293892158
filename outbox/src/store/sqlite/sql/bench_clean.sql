-- Deletes what a measurement left. ?1 its queue, which nobody else has; ?2 rows at most.
-- Locks: the file, for writing. Index: "outbox_due_idx".
DELETE FROM "outbox"
WHERE id IN (SELECT id FROM "outbox" WHERE queue = ?1 LIMIT ?2)
