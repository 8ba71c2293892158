-- What operators need: pauses, the way from a dead letter to its replay, and indexes
-- for pages of letters, groups and replays.

-- Queues that no claim takes from. Read by every claim; nearly always empty.
CREATE TABLE IF NOT EXISTS "outbox_paused" (
    queue TEXT PRIMARY KEY NOT NULL,
    paused_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    note TEXT
) STRICT;

-- The row that a replay made of the letter.
ALTER TABLE "outbox_dlq" ADD COLUMN replayed_id INTEGER;

-- Serves pages of one status, whatever the queue, and purges.
CREATE INDEX IF NOT EXISTS "outbox_dlq_status_idx" ON "outbox_dlq" (status, failed_at, id);

-- Serves replays and pages of the open letters of a queue, which a large pile of
-- letters that are done with must not slow down.
CREATE INDEX IF NOT EXISTS "outbox_dlq_open_idx" ON "outbox_dlq" (queue, failed_at, id)
    WHERE status = 'failed';

-- Serves the groups of open letters, and replays of one group.
CREATE INDEX IF NOT EXISTS "outbox_dlq_group_idx" ON "outbox_dlq" (fingerprint, failed_at, id)
    WHERE status = 'failed';
