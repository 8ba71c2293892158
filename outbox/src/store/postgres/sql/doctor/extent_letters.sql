-- How many dead letters failed, and the last id. Locks nothing.
-- Index: "outbox_dlq_open_idx", all of it, and the primary key.
SELECT count(*), (SELECT coalesce(max(id), 0) FROM "outbox_dlq") FROM "outbox_dlq"
WHERE status = 'failed'
