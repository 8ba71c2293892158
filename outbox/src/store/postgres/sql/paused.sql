-- Says which queues are paused, since when, and why.
-- Locks nothing. Reads the table whole: it has a row for each queue that is paused.
SELECT paused.queue::text, paused.paused_at, paused.note
FROM "outbox_paused" AS paused
ORDER BY paused.queue
