-- Starts a lease anew, under the same token or another one.
-- ?1 id, ?2 token, ?3 token to continue under. Index: the primary key.
-- Also run for a range of ids: see batch.rs.
UPDATE "outbox"
SET acquired_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    acquired_token = ?3
WHERE id = ?1 AND acquired_token = ?2
