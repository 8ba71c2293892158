-- Pauses a queue; one that is paused keeps its time.
-- ?1 queue, ?2 why, or NULL.
-- Locks: the file. Index: the primary key.
INSERT INTO "outbox_paused" (queue, note) VALUES (?1, ?2)
ON CONFLICT (queue) DO UPDATE SET note = coalesce(excluded.note, note)
RETURNING queue, paused_at, note
