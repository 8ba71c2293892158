-- Leases due rows as claim.sql does, for the one queue of one claim that expects few: this is
-- what follows a wake. A plan for many claims takes most of its time before it begins, and each
-- further part of this one, too, costs some 5 us.
-- $1 rows at most, $2 lease in microseconds, $3 token, $4 and $5 due time and id to begin
-- behind or NULL, $6 the queue.
-- Locks and index: as there; that a row is free is asked by a CASE as in cancel_timer. One look at
-- the first hundred rows says how long to wait: until the first that is still to come, or until the
-- first lease runs out. If all hundred are due, if a lease has run out, or if one that is free is
-- large, it takes none and says -1: that is for claim.sql. So what it takes was settled before, and
-- is less than 32 MiB.
-- There is always a row, of no message if none was taken. It says how many were locked, too: if
-- some of them were not taken, they may be at once. Of a paused queue it says nothing.
-- The lease begins with the statement. The caller counts it from before it was sent.
WITH ahead AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true),
        (SELECT CASE
             WHEN bool_or(first.other)
                 OR count(*) = 100 AND max(first.next_attempt_at) <= statement_timestamp() THEN -1
             ELSE coalesce(
                 date_part('epoch', min(first.at) - statement_timestamp()) * 1000000, 'infinity')
             END
         FROM (SELECT o.next_attempt_at,
                   CASE WHEN o.next_attempt_at > statement_timestamp() THEN o.next_attempt_at
                        WHEN o.acquired_at < 'infinity' THEN
                            least(o.acquired_at, statement_timestamp()) + $2 * interval '1 microsecond'
                   END AS at,
                   o.next_attempt_at <= statement_timestamp()
                       AND (o.acquired_at <= statement_timestamp() - $2 * interval '1 microsecond'
                            OR o.acquired_token IS NULL
                               AND (octet_length(o.payload) > 262144
                                    OR pg_column_size(o.headers) > 512)) AS other
               FROM "outbox" AS o
               WHERE o.queue = $6
                 AND o.next_attempt_at < 'infinity'
                 AND (o.next_attempt_at, o.id) > (coalesce($4, '-infinity'), coalesce($5, -9223372036854775808))
               ORDER BY o.next_attempt_at, o.id
               LIMIT 100) AS first
         HAVING true
            AND NOT EXISTS (SELECT FROM "outbox_paused" AS paused WHERE paused.queue = $6)
        ) AS wait
), locked AS MATERIALIZED (
    SELECT ARRAY(
        SELECT o.ctid
        FROM "outbox" AS o
        WHERE o.queue = $6
          AND o.next_attempt_at <= statement_timestamp()
          AND (o.next_attempt_at, o.id) > (coalesce($4, '-infinity'), coalesce($5, -9223372036854775808))
          AND CASE WHEN o.acquired_token IS NULL THEN true END
        ORDER BY o.next_attempt_at, o.id
        LIMIT $1
        FOR UPDATE OF o SKIP LOCKED) AS tids
    FROM ahead
    WHERE ahead.wait >= 0
), taken AS (
    UPDATE "outbox" AS o
    SET acquired_token = $3, acquired_at = statement_timestamp(),
        deliveries_count = least(greatest(o.deliveries_count, 0), 9223372036854775806) + 1
    WHERE o.ctid = ANY((SELECT locked.tids FROM locked)::tid[])
      AND CASE WHEN o.acquired_token IS NULL THEN true END
    RETURNING o.id, o.payload, o.headers::text AS headers, o.attempts_count, o.deliveries_count,
        o.created_at, o.next_attempt_at, o.first_attempt_at, o.last_attempt_at, o.acquired_at,
        o.timer_id
)
SELECT taken.id, taken.payload, taken.headers, taken.attempts_count, taken.deliveries_count,
    taken.created_at, taken.next_attempt_at, taken.first_attempt_at, taken.last_attempt_at,
    taken.acquired_at, taken.timer_id, nullif(ahead.wait, 'infinity')::bigint,
    (SELECT cardinality(locked.tids) FROM locked)
FROM ahead
LEFT JOIN taken ON true
