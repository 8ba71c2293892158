-- Reads a page of dead letters, the newest first, without their payloads.
-- $1 to $7 the filter, see letters_where; $8 and $9 time and id of the letter behind
-- which it begins; $10 how many.
-- Locks nothing. Index: "outbox_dlq_open_idx" for the open letters of a queue,
-- "outbox_dlq_group_idx" for those of a problem, "outbox_dlq_queue_failed_idx" for a
-- queue, otherwise "outbox_dlq_status_idx"; read backwards.
SELECT l.id, l.original_id, l.queue, octet_length(l.payload)::bigint, l.deliveries_count,
    l.created_at, l.failed_at, l.failure_reason, left(l.last_exception, 1000), l.timer_id,
    l.status, l.resolved_at, left(l.note, 1000), l.error_kind, l.fingerprint, l.replayed_id,
    CASE WHEN jsonb_typeof(l.headers) = 'object' THEN l.headers ->> 'outbox-replays' END
FROM "outbox_dlq" AS l
WHERE true
-- the filter
  AND (l.failed_at, l.id) < ($8, $9) -- if after
ORDER BY l.failed_at DESC, l.id DESC
LIMIT $10
