-- Finds the row of a timer, and whether a claim holds it. $1 queue, $2 timer name.
-- Locks nothing. Index: "outbox_timer_id_uq".
SELECT o.id, o.acquired_token IS NOT NULL FROM "outbox" AS o WHERE o.queue = $1 AND o.timer_id = $2
