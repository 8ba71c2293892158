-- Refuses to go on where `ack` has left a row in the table, because a trigger of somebody's keeps
-- it: there would be a letter of a row that is still there, and one more at each delivery.
-- ?1 id, ?2 token.
-- Index: the primary key.
-- Also run for a range of ids: see batch.rs.
SELECT RAISE(ABORT, 'a row was not deleted: a trigger of the outbox keeps it')
WHERE EXISTS (SELECT 1 FROM "outbox" WHERE id = ?1 AND acquired_token = ?2)
