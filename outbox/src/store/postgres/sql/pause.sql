-- Pauses queues; says of each since when, why, and whether it was paused before, which
-- keeps its time.
-- $1 queues, each once, in order; $2 why, or NULL.
-- Locks: the rows, in order. Index: the primary key.
WITH before AS MATERIALIZED (
    SELECT paused.queue::text FROM "outbox_paused" AS paused WHERE paused.queue = ANY($1::text[])
), written AS (
    INSERT INTO "outbox_paused" AS paused (queue, paused_at, note)
    SELECT given.queue, clock_timestamp(), $2 FROM unnest($1::text[]) AS given(queue)
    ON CONFLICT (queue) DO UPDATE SET note = coalesce(EXCLUDED.note, paused.note)
    RETURNING paused.queue::text AS queue, paused.paused_at, paused.note
)
SELECT written.queue, written.paused_at, written.note,
    EXISTS (SELECT FROM before WHERE before.queue = written.queue)
FROM written
ORDER BY written.queue
