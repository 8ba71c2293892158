-- Moves rows that failed for good to the dead-letter table: both or neither.
-- $1 ids, ascending. Of each run of them: $2 token, $3 its first id, $4 reason, $5 kind,
-- $6 exception, $7 note, $8 fingerprint.
-- Locks: the rows, in order of id. Index: the primary key; a token is compared as in ack.
-- A lost lease deletes nothing, so it inserts nothing. A failing insert takes
-- the delete back with it, and one that a trigger of somebody's leaves out fails too: as an
-- array that cannot be read, because SQL has no error of its own.
WITH deleted AS (
    DELETE FROM "outbox" AS o
    WHERE o.id = ANY($1::bigint[])
      AND o.acquired_token IS NOT DISTINCT FROM ($2::uuid[])[width_bucket(o.id, $3::bigint[])]
    RETURNING o.id, o.queue, o.payload, o.headers, o.deliveries_count, o.created_at, o.timer_id,
        width_bucket(o.id, $3::bigint[]) AS run
), kept AS (
    INSERT INTO "outbox_dlq" (original_id, queue, payload, headers, deliveries_count, created_at,
        failed_at, failure_reason, last_exception, timer_id, error_kind, note, fingerprint)
    SELECT id, queue, payload, headers, deliveries_count, created_at, clock_timestamp(),
        ($4::text[])[run], ($6::text[])[run], left(timer_id, 255), ($5::text[])[run], ($7::text[])[run],
        ($8::text[])[run]
    FROM deleted
    RETURNING 1
)
SELECT CASE (SELECT count(*) FROM kept) WHEN count(*) THEN array_agg(id)
    ELSE (count(*) || ' letters and not all were written: a trigger of their table leaves some out')::bigint[]
    END
FROM deleted
