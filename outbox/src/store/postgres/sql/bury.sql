-- Moves rows that failed for good to the dead-letter table: both or neither.
-- $1 ids, $2 tokens, $3 reasons, $4 kinds, $5 exceptions, $6 notes.
-- Locks: the rows, in order of id. Index: the primary key.
-- A lost lease deletes nothing, so it inserts nothing. A failing insert takes
-- the delete back with it.
WITH dying AS MATERIALIZED (
    SELECT o.id, o.acquired_token AS token, settled.reason, settled.kind, settled.exception,
        settled.note
    FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[])
        AS settled(id, token, reason, kind, exception, note)
    JOIN "outbox" AS o ON o.id = ANY(ARRAY[settled.id]) AND o.acquired_token = settled.token
    ORDER BY settled.id
    FOR UPDATE OF o
), deleted AS (
    DELETE FROM "outbox" AS o
    USING dying
    WHERE o.id = ANY(ARRAY[dying.id]) AND o.acquired_token = dying.token
    RETURNING o.id, dying.token, o.queue, o.payload, o.headers, o.deliveries_count, o.created_at,
        o.timer_id, dying.reason, dying.kind, dying.exception, dying.note
), kept AS (
    INSERT INTO "outbox_dlq" (original_id, queue, payload, headers, deliveries_count, created_at,
        failed_at, failure_reason, last_exception, timer_id, error_kind, note)
    SELECT id, queue, payload, headers, deliveries_count, created_at,
        clock_timestamp(), reason, exception, timer_id, kind, note
    FROM deleted
)
SELECT array_agg(id), array_agg(token) FROM deleted
