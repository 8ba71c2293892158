-- The queues that have rows, and how many. Locks nothing.
-- Index: "outbox_due_idx", all of it, and no row where vacuum has been.
SELECT queue, count(*) FROM "outbox" WHERE next_attempt_at IS NOT NULL GROUP BY queue
