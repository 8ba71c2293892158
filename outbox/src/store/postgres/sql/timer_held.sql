-- Whether somebody holds the name of a timer that was not written: it is live, and to be left
-- alone or worked on. $1 queue, $2 timer name, $3 whether it was to be moved.
-- Locks nothing. Index: "outbox_timer_id_uq"; behind the CASE no planner sees that one of Python's
-- would do, see cancel_timer.
SELECT true
FROM "outbox"
WHERE queue = $1 AND timer_id = $2 AND CASE WHEN acquired_token IS NOT NULL OR NOT $3 THEN true END
