-- Reads one dead letter with all that is in it. ?1 its id.
-- Locks nothing. Index: the primary key.
SELECT l.id, l.original_id, l.queue, length(l.payload), l.deliveries_count,
    l.created_at, l.failed_at, l.failure_reason, l.last_exception, l.timer_id,
    l.status, l.resolved_at, l.note, l.error_kind, l.fingerprint, l.replayed_id,
    CASE WHEN json_valid(l.headers) THEN l.headers ->> 'outbox-replays' END,
    l.payload, l.headers
FROM "outbox_dlq" AS l
WHERE l.id = ?1
