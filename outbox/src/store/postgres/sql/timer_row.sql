-- Finds the row of a timer. $1 queue, $2 timer name.
-- Locks nothing. Index: "outbox_timer_id_uq".
SELECT o.id FROM "outbox" AS o WHERE o.queue = $1 AND o.timer_id = $2
