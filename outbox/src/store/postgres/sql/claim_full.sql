-- Leases due rows as claim.sql does, for the one queue of one claim that expects as many as it
-- asks for: this is what drains a backlog. It is the shortest plan: what is updated is found
-- by an array of places, so that no row is joined, and goes out as it is written, without
-- being kept before.
-- $1 rows at most, $2 lease in microseconds, $3 token, $4 and $5 due time and id to begin
-- behind or NULL, $6 the queue, $7 what the two places for claims under way are named after.
-- Locks and index: as there. Of more than 32 MiB it takes none. It does not look ahead: who
-- got less than he asked for asks again, by another statement.
-- The lease begins with the statement. The caller counts it from before it was sent.
WITH lanes AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true),
        NOT pg_try_advisory_xact_lock(hashtextextended($7, 0))
            AND NOT pg_try_advisory_xact_lock(hashtextextended($7, 1)) AS crowded
), due AS MATERIALIZED (
    SELECT o.ctid AS tid, o.id, o.acquired_token AS previous,
        octet_length(o.payload) + CASE
            WHEN o.headers IS NULL THEN 0
            WHEN pg_column_size(o.headers) < 512 THEN pg_column_size(o.headers)
            WHEN pg_column_size(o.headers) < 2000 THEN octet_length(o.headers::text)
            ELSE least(90 * pg_column_size(o.headers)::bigint, 33554432)::integer
        END AS bytes
    FROM "outbox" AS o
    WHERE o.queue = $6
      AND o.next_attempt_at <= statement_timestamp()
      AND (o.next_attempt_at, o.id) > (coalesce($4, '-infinity'), coalesce($5, 0))
      AND (o.acquired_token IS NULL
           OR o.acquired_at <= statement_timestamp() - $2 * interval '1 microsecond')
      AND NOT EXISTS (SELECT FROM "outbox_paused" AS paused WHERE paused.queue = $6)
      AND (SELECT crowded FROM lanes) IS NOT NULL
    ORDER BY o.next_attempt_at, o.id
    LIMIT $1
    FOR UPDATE OF o SKIP LOCKED
)
UPDATE "outbox" AS o
SET acquired_token = $3, acquired_at = statement_timestamp(),
    deliveries_count = o.deliveries_count + 1
WHERE o.ctid = ANY(ARRAY(SELECT due.tid FROM due))
  AND (SELECT sum(due.bytes) FROM due) <= 33554432
  AND (o.acquired_token IS NULL
       OR o.acquired_at <= statement_timestamp() - $2 * interval '1 microsecond')
RETURNING o.id, o.queue, o.payload, o.headers::text AS headers, o.attempts_count,
    o.deliveries_count, o.created_at, o.next_attempt_at, o.first_attempt_at,
    o.last_attempt_at, o.acquired_at, NULL::uuid, o.timer_id,
    CASE WHEN (SELECT bool_or(due.previous IS NOT NULL) FROM due) THEN
        (ARRAY(SELECT due.previous FROM due))[array_position(ARRAY(SELECT due.id FROM due), o.id)]
    END,
    (SELECT lanes.crowded FROM lanes)
