-- Moves rows that failed for good to the dead-letter table: both or neither.
-- $1 ids. Of each run of them: $2 token, $3 and $4 places of its first and last id,
-- $5 reason, $6 kind, $7 exception, $8 note, $9 fingerprint.
-- Locks: the rows, run by run, in order of id. Index: the primary key.
-- A lost lease deletes nothing, so it inserts nothing. A failing insert takes
-- the delete back with it.
WITH deleted AS (
    DELETE FROM "outbox" AS o
    USING unnest($2::uuid[], $3::int[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[])
        AS run(token, first, last, reason, kind, exception, note, fingerprint)
    WHERE o.id = ANY(($1::bigint[])[run.first:run.last]) AND o.acquired_token = run.token
    RETURNING o.id, run.token, o.queue, o.payload, o.headers, o.deliveries_count, o.created_at,
        o.timer_id, run.reason, run.kind, run.exception, run.note, run.fingerprint
), kept AS (
    INSERT INTO "outbox_dlq" (original_id, queue, payload, headers, deliveries_count, created_at,
        failed_at, failure_reason, last_exception, timer_id, error_kind, note, fingerprint)
    SELECT id, queue, payload, headers, deliveries_count, created_at,
        clock_timestamp(), reason, exception, timer_id, kind, note, fingerprint
    FROM deleted
)
SELECT array_agg(id), array_agg(token) FROM deleted
