-- Leases due rows as claim.sql does, for the one queue of one claim that expects as many as it
-- asks for: this is what drains a backlog. It is the shortest plan: the rows that are locked
-- become an array of their places, so that none of them is kept or joined, and each goes out
-- as it is written, without what the caller knows of all of them: the queue and the token.
-- $1 rows at most, $2 lease in microseconds, $3 token, $4 and $5 due time and id to begin
-- behind or NULL, $6 the queue, $7 what the two places for claims under way are named after.
-- Locks and index: as there. Of more than 32 MiB it takes none. It does not look ahead: who
-- got less than he asked for asks again, by another statement. The last column is true if
-- others are claiming.
-- Behind a place it does not even try to lock what somebody has locked who still runs, such
-- as another claim: to fail at that costs as much as to take the row. `xmax` is who locked it
-- last: one who runs is among those of the snapshot, or younger than it. It may stand for
-- several lockers, too; what that cannot tell, a claim from the start tries.
-- The lease begins with the statement. The caller counts it from before it was sent.
WITH lanes AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true),
        NOT pg_try_advisory_xact_lock(hashtextextended($7, 0))
            AND NOT pg_try_advisory_xact_lock(hashtextextended($7, 1)) AS crowded
), locked AS MATERIALIZED (
    SELECT array_agg(due.tid) AS tids, sum(due.bytes) AS bytes,
        array_agg(due.id) FILTER (WHERE due.previous IS NOT NULL) AS ids,
        array_agg(due.previous) FILTER (WHERE due.previous IS NOT NULL) AS previous
    FROM (
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
          AND (o.next_attempt_at, o.id) > (coalesce($4, '-infinity'), coalesce($5, -9223372036854775808))
          AND (o.acquired_token IS NULL
               OR o.acquired_at <= statement_timestamp() - $2 * interval '1 microsecond')
          AND ($4 IS NULL OR o.xmax = 0
               OR age(o.xmax) > (SELECT age(pg_snapshot_xmax(pg_current_snapshot())::xid))
                  AND o.xmax <> ALL (ARRAY(SELECT pg_snapshot_xip(pg_current_snapshot())::xid)))
          AND NOT EXISTS (SELECT FROM "outbox_paused" AS paused WHERE paused.queue = $6)
          AND (SELECT crowded FROM lanes) IS NOT NULL
        ORDER BY o.next_attempt_at, o.id
        LIMIT $1
        FOR UPDATE OF o SKIP LOCKED
    ) AS due
)
UPDATE "outbox" AS o
SET acquired_token = $3, acquired_at = statement_timestamp(),
    deliveries_count = least(greatest(o.deliveries_count, 0), 9223372036854775806) + 1
WHERE o.ctid = ANY((SELECT locked.tids FROM locked WHERE locked.bytes <= 33554432)::tid[])
  AND (o.acquired_token IS NULL
       OR o.acquired_at <= statement_timestamp() - $2 * interval '1 microsecond')
RETURNING o.id, o.payload, o.headers::text AS headers, o.attempts_count, o.deliveries_count,
    o.created_at, o.next_attempt_at, o.first_attempt_at, o.last_attempt_at, o.acquired_at,
    o.timer_id,
    (SELECT locked.previous FROM locked)[array_position((SELECT locked.ids FROM locked), o.id)],
    (SELECT nullif(lanes.crowded, false) FROM lanes)
