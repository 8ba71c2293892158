-- Deletes the row of a timer unless somebody works on it. ?1 queue, ?2 timer name.
-- Index: "outbox_timer_id_uq".
DELETE FROM "outbox" WHERE queue = ?1 AND timer_id = ?2 AND acquired_token IS NULL
