-- The outbox, and the table of its dead letters.
--
-- The columns are PostgreSQL's. Times are microseconds since 1970, tokens and
-- payloads are BLOBs, headers are a JSON object as text.

CREATE TABLE IF NOT EXISTS "outbox" (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    payload BLOB NOT NULL,
    headers TEXT,
    attempts_count INTEGER NOT NULL DEFAULT 0,
    deliveries_count INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    next_attempt_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    first_attempt_at INTEGER,
    last_attempt_at INTEGER,
    acquired_at INTEGER,
    acquired_token BLOB,
    timer_id TEXT,
    -- A half-set lease would hide its row from every claim for ever.
    CONSTRAINT "outbox_lease_ck" CHECK ((acquired_token IS NULL) = (acquired_at IS NULL))
) STRICT;

-- Serves claims: read in order, from the oldest due row.
CREATE INDEX IF NOT EXISTS "outbox_due_idx" ON "outbox" (queue, next_attempt_at, id);

-- At most one live row of a queue has a timer name.
CREATE UNIQUE INDEX IF NOT EXISTS "outbox_timer_id_uq" ON "outbox" (queue, timer_id)
    WHERE timer_id IS NOT NULL;

CREATE TABLE IF NOT EXISTS "outbox_dlq" (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    original_id INTEGER NOT NULL,
    queue TEXT NOT NULL,
    payload BLOB NOT NULL,
    headers TEXT,
    deliveries_count INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    failed_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    failure_reason TEXT NOT NULL,
    last_exception TEXT,
    timer_id TEXT,
    -- The life of a dead letter, and what triage needs.
    status TEXT NOT NULL DEFAULT 'failed'
        CONSTRAINT "outbox_dlq_status_ck" CHECK (status IN ('failed', 'resolved', 'ignored')),
    resolved_at INTEGER,
    note TEXT,
    error_kind TEXT,
    fingerprint TEXT
) STRICT;

-- Serves "the recent failures of this queue".
CREATE INDEX IF NOT EXISTS "outbox_dlq_queue_failed_idx" ON "outbox_dlq" (queue, failed_at);
