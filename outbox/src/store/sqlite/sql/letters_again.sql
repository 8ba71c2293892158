-- Which of these rows have become dead letters since a time. ?1 ids, a JSON array;
-- ?2 time; ?3 status.
-- Locks nothing. Index: "outbox_dlq_status_idx"; it reads what has failed since.
SELECT l.original_id
FROM "outbox_dlq" AS l
WHERE l.status = ?3 AND l.failed_at >= ?2
  AND l.original_id IN (SELECT value FROM json_each(?1))
