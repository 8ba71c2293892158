-- Marks a dead letter as replayed. ?1 its id, ?2 id of the row.
-- Index: the primary key.
UPDATE "outbox_dlq"
SET status = 'resolved', resolved_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    replayed_id = ?2
WHERE id = ?1
