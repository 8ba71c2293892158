-- Deletes the row of a timer unless somebody works on it. $1 queue, $2 timer name.
-- Locks: the row. Index: "outbox_timer_id_uq". Behind the CASE no planner sees that Python's index
-- of free rows would do: one that takes the table for empty might read all of that instead.
DELETE FROM "outbox"
WHERE queue = $1 AND timer_id = $2 AND CASE WHEN acquired_token IS NULL THEN true END
RETURNING id
