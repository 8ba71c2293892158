-- Refuses to go on where `bury` has not made a letter of each row, because a trigger of
-- somebody's leaves one out: `ack` would delete the last copy. ?1 id, ?2 token.
-- Index: the primary key.
-- Also run for a range of ids: see batch.rs.
SELECT RAISE(ABORT, 'a letter was not written: a trigger of the dead-letter table leaves it out')
WHERE changes() <> (SELECT count(*) FROM "outbox" WHERE id = ?1 AND acquired_token = ?2)
