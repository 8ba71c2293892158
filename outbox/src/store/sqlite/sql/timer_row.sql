-- Finds the row of a timer, and whether a claim holds it. ?1 queue, ?2 timer name.
-- Locks nothing. Index: "outbox_timer_id_uq".
SELECT id, acquired_token IS NOT NULL FROM "outbox" WHERE queue = ?1 AND timer_id = ?2
