-- The queues that have rows, and how many. Index: "outbox_due_idx", all of it.
SELECT queue, count(*) FROM "outbox" GROUP BY queue
