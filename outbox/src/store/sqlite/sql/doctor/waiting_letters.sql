-- The queues that have failed dead letters, and how many.
-- Index: "outbox_dlq_open_idx", all of it.
SELECT queue, count(*) FROM "outbox_dlq" WHERE status = 'failed' GROUP BY queue
