-- Says which queues are paused, since when, and why.
-- Locks nothing. Reads the table whole: it has a row for each queue that is paused.
SELECT queue, paused_at, note FROM "outbox_paused" ORDER BY queue
