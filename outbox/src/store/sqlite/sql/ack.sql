-- Deletes a handled row whose lease still holds. ?1 id, ?2 token.
-- Index: the primary key.
-- Also run for a range of ids: see batch.rs.
DELETE FROM "outbox" WHERE id = ?1 AND acquired_token = ?2
