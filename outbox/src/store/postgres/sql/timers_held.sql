-- Whether somebody holds the names of timers that were not written: each is live, and to be left
-- alone or worked on. $1 queues, $2 timer names, $3 whether each was to be moved.
-- Locks nothing. Index: "outbox_timer_id_uq", for each: no planner makes a join of a sub-select in
-- a list. Behind the CASE none sees that one of Python's would do, see cancel_timer.
SELECT array_agg((
    SELECT true FROM "outbox" AS held
    WHERE held.queue = given.queue AND held.timer_id = given.timer_id
      AND CASE WHEN held.acquired_token IS NOT NULL OR NOT given.extend THEN true END
) IS NOT NULL ORDER BY given.place)
FROM unnest($1::text[], $2::text[], $3::bool[])
    WITH ORDINALITY AS given(queue, timer_id, extend, place)
