-- Which of these rows have become dead letters since a time. $1 ids, $2 time, $3 status.
-- Locks nothing. Index: "outbox_dlq_status_idx"; it reads what has failed since.
SELECT l.original_id
FROM "outbox_dlq" AS l
WHERE l.original_id = ANY($1) AND l.failed_at >= $2 AND l.status = $3
