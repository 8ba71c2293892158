-- Gives a dead letter its fingerprint. ?1 its id, ?2 the fingerprint.
-- Index: the primary key.
UPDATE "outbox_dlq"
SET fingerprint = ?2
WHERE id = ?1 AND fingerprint IS NULL
