-- The queues that have failed dead letters, and how many. Locks nothing.
-- Index: "outbox_dlq_open_idx", all of it, and no row where vacuum has been.
SELECT queue, count(*) FROM "outbox_dlq" WHERE status = 'failed' GROUP BY queue
