-- The live row of a timer that nobody works on. ?1 queue, ?2 timer name.
-- Locks nothing. Index: "outbox_timer_id_uq".
SELECT id FROM "outbox" WHERE queue = ?1 AND timer_id = ?2 AND acquired_token IS NULL
