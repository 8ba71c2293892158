-- Reads one dead letter with all that is in it. $1 its id; of two that have it the one that a
-- replay would take.
-- Locks nothing. Index: the primary key.
SELECT l.id, l.original_id, l.queue, octet_length(l.payload)::bigint, l.deliveries_count,
    l.created_at, l.failed_at, l.failure_reason, l.last_exception, l.timer_id,
    l.status, l.resolved_at, l.note, l.error_kind, l.fingerprint, l.replayed_id,
    CASE WHEN jsonb_typeof(l.headers) = 'object' THEN l.headers ->> 'outbox-replays' END,
    l.payload, l.headers::text
FROM "outbox_dlq" AS l
WHERE l.id = $1
ORDER BY (l.status = 'failed') DESC, l.failed_at
LIMIT 1
