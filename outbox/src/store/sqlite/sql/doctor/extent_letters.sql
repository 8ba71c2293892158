-- How many dead letters failed, and the last id.
-- Index: "outbox_dlq_open_idx", all of it, and the primary key.
SELECT count(*), coalesce((SELECT max(id) FROM "outbox_dlq"), 0) FROM "outbox_dlq"
WHERE status = 'failed'
