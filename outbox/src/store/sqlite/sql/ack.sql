-- Deletes a handled row whose lease still holds. ?1 id, ?2 token.
-- Index: the primary key.
DELETE FROM "outbox" WHERE id = ?1 AND acquired_token = ?2
