-- Copies a row that failed for good to the dead-letter table; `ack` deletes it in
-- the same BEGIN IMMEDIATE transaction: both or neither.
-- ?1 id, ?2 token, ?3 reason, ?4 kind, ?5 exception, ?6 note,
-- ?7 fingerprint.
-- Index: the primary key.
-- Also run for a range of ids: see batch.rs.
INSERT INTO "outbox_dlq" (original_id, queue, payload, headers, deliveries_count, created_at,
    failed_at, failure_reason, last_exception, timer_id, error_kind, note,
    fingerprint)
SELECT id, queue, payload, headers, deliveries_count, created_at,
    CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?3, ?5, timer_id, ?4, ?6, ?7
FROM "outbox"
WHERE id = ?1 AND acquired_token = ?2
