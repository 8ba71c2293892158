-- Leases due rows as claim.sql does, for the one queue of one claim that expects few:
-- this is what follows a wake. It answers in two thirds of the time, most of which a plan
-- for many claims takes before it begins.
-- $1 rows at most, $2 lease in microseconds, $3 token, $4 and $5 due time and id to begin
-- behind or NULL, $6 the queue.
-- Locks and index: as there. `due` has a row, of no message, even if it found none: it
-- says what the time was; of a paused queue it has none.
WITH due AS MATERIALIZED (
    SELECT clock.now, found.tid, found.id, found.acquired_token AS previous,
        coalesce(sum(found.bytes) OVER (
            ORDER BY found.next_attempt_at, found.id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < 33554432 AS fits
    FROM (
        SELECT clock_timestamp() AS now, set_config('synchronous_commit', 'off', true)
        WHERE NOT EXISTS (SELECT FROM "outbox_paused" AS paused WHERE paused.queue = $6)
    ) AS clock
    LEFT JOIN LATERAL (
        SELECT o.ctid AS tid, o.id, o.acquired_token, o.next_attempt_at,
            octet_length(o.payload) + CASE
                WHEN o.headers IS NULL THEN 0
                WHEN pg_column_size(o.headers) < 512 THEN pg_column_size(o.headers)
                WHEN pg_column_size(o.headers) < 2000 THEN octet_length(o.headers::text)
                ELSE least(90 * pg_column_size(o.headers)::bigint, 33554432)::integer
            END AS bytes
        FROM "outbox" AS o
        WHERE o.queue = $6
          AND o.next_attempt_at <= clock.now
          AND (o.next_attempt_at, o.id) > (coalesce($4, '-infinity'), coalesce($5, 0))
          AND (o.acquired_token IS NULL
               OR o.acquired_at <= clock.now - $2 * interval '1 microsecond')
        ORDER BY o.next_attempt_at, o.id
        LIMIT $1
        FOR UPDATE OF o SKIP LOCKED
    ) AS found ON true
), taken AS (
    UPDATE "outbox" AS o
    SET acquired_token = $3, acquired_at = due.now, deliveries_count = o.deliveries_count + 1
    FROM due
    WHERE o.ctid = due.tid
      AND due.fits
      AND (o.acquired_token IS NULL OR o.acquired_at <= due.now - $2 * interval '1 microsecond')
    RETURNING o.id, o.queue, o.payload, o.headers::text AS headers, o.attempts_count,
        o.deliveries_count, o.created_at, o.next_attempt_at, o.first_attempt_at,
        o.last_attempt_at, o.acquired_at, o.timer_id, due.previous
)
SELECT id, queue, payload, headers, attempts_count, deliveries_count, created_at,
    next_attempt_at, first_attempt_at, last_attempt_at, acquired_at, NULL::uuid, timer_id,
    previous, 1::bigint AS place, NULL::bigint AS wait
FROM taken
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    1::bigint, CASE WHEN found.taken = found.rows THEN least(
        (SELECT extract(epoch FROM o.next_attempt_at - found.now) * 1000000
         FROM "outbox" AS o
         WHERE o.queue = $6 AND o.next_attempt_at > found.now AND o.next_attempt_at < 'infinity'
         ORDER BY o.next_attempt_at, o.id
         LIMIT 1),
        (SELECT min(greatest(extract(epoch FROM
             oldest.acquired_at + $2 * interval '1 microsecond' - found.now) * 1000000, 100000))
         FROM (SELECT o.acquired_at
               FROM "outbox" AS o
               WHERE o.queue = $6 AND o.next_attempt_at <= found.now
                 AND (o.next_attempt_at, o.id) > (coalesce($4, '-infinity'), coalesce($5, 0))
               ORDER BY o.next_attempt_at, o.id
               LIMIT 100) AS oldest
         WHERE isfinite(oldest.acquired_at)))::bigint ELSE 0 END
FROM (SELECT min(due.now) AS now, count(due.tid) AS rows, (SELECT count(*) FROM taken) AS taken
    FROM due) AS found
WHERE $1 = 0 OR found.taken < $1
