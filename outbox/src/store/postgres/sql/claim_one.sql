-- Leases due rows as claim.sql does, for the one queue of one claim that expects few:
-- this is what follows a wake. A plan for many claims takes most of its time before it begins:
-- each further part of this one, too, costs some 20 us.
-- $1 rows at most, $2 lease in microseconds, $3 token, $4 and $5 due time and id to begin
-- behind or NULL, $6 the queue.
-- Locks and index: as there. Every row tells how long to wait, and how many there were: if some
-- were not taken, they may be at once. Of more than 32 MiB it takes none and says -1: that is
-- for claim.sql. There is always a row, of no message if none was taken.
-- The lease begins with the statement. The caller counts it from before it was sent.
WITH due AS MATERIALIZED (
    SELECT o.ctid AS tid, o.acquired_token AS previous,
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
    ORDER BY o.next_attempt_at, o.id
    LIMIT $1
    FOR UPDATE OF o SKIP LOCKED
), taken AS (
    UPDATE "outbox" AS o
    SET acquired_token = $3, acquired_at = statement_timestamp(),
        deliveries_count = o.deliveries_count + 1
    FROM due
    WHERE o.ctid = due.tid
      AND (SELECT sum(due.bytes) FROM due) <= 33554432
      AND (o.acquired_token IS NULL
           OR o.acquired_at <= statement_timestamp() - $2 * interval '1 microsecond')
    RETURNING o.id, o.queue, o.payload, o.headers::text AS headers, o.attempts_count,
        o.deliveries_count, o.created_at, o.next_attempt_at, o.first_attempt_at,
        o.last_attempt_at, o.acquired_at, o.timer_id, due.previous
)
SELECT id, queue, payload, headers, attempts_count, deliveries_count, created_at,
    next_attempt_at, first_attempt_at, last_attempt_at, acquired_at, NULL::uuid, timer_id,
    previous, 1::bigint AS place, ahead.wait, ahead.rows
FROM (
    SELECT CASE WHEN sum(due.bytes) > 33554432 THEN -1 ELSE count(*) END AS rows,
        set_config('synchronous_commit', 'off', true),
        CASE WHEN true
            AND NOT EXISTS (SELECT FROM "outbox_paused" AS paused WHERE paused.queue = $6)
        THEN least(
            (SELECT extract(epoch FROM o.next_attempt_at - statement_timestamp()) * 1000000
             FROM "outbox" AS o
             WHERE o.queue = $6 AND o.next_attempt_at > statement_timestamp()
               AND o.next_attempt_at < 'infinity'
             ORDER BY o.next_attempt_at, o.id
             LIMIT 1),
            (SELECT min(greatest(extract(epoch FROM
                 oldest.acquired_at + $2 * interval '1 microsecond' - statement_timestamp())
                 * 1000000, 100000))
             FROM (SELECT o.acquired_at
                   FROM "outbox" AS o
                   WHERE o.queue = $6 AND o.next_attempt_at <= statement_timestamp()
                     AND (o.next_attempt_at, o.id) > (coalesce($4, '-infinity'), coalesce($5, 0))
                   ORDER BY o.next_attempt_at, o.id
                   LIMIT 100) AS oldest
             WHERE isfinite(oldest.acquired_at)))::bigint END AS wait
    FROM due
) AS ahead
LEFT JOIN taken ON true
