-- Leases due rows, free ones and those whose lease ran out, for several claims,
-- and says when there may be more.
-- Of each claim: $1 rows at most, $2 lease in microseconds, $3 token, $4 and $5
-- due time and id to begin behind or NULL. Of each queue: $6 name, $7 number of its
-- claim, from 1; one that is paused is passed by. $8 what the two places for claims under
-- way are named after, or NULL.
-- Locks: FOR UPDATE on the rows taken, for this statement; rows that somebody
-- else has locked are skipped. And one of the two places, if one is free: nobody waits
-- for it, and who finds none is told so by a row whose `place` is 0.
-- Index: "outbox_due_idx" (queue, next_attempt_at, id), read in order for each
-- queue. MATERIALIZED, because a planner that inlines the subquery may run it
-- again for every row and claim more than $1. Locked rows stay where they are, so
-- they are found again by their place, which no index has to be walked for; one that
-- was written since the statement began is left for the next claim, which may be made at
-- once: its `wait` is 0.
-- The rows behind 32 MiB of payloads and headers are left for the next claim, which may be
-- made at once: their `wait` is 0. Of large ones more than the caller can hold would come.
-- The length of a payload is known without reading it. Headers say only how long they are
-- as they are stored, perhaps compressed, to a 90th at most by the server's default. Short
-- ones count as that, because to write them out costs a tenth of the claim; those out of
-- line as the most they can be, because a thousand of those are not read to take two.
-- `fitting` is read only where there are so many bytes, because a window over a thousand
-- rows costs as much as another tenth.
-- The commit is not waited for: a claim that a crash of the server undoes is a
-- delivery that is made again.
-- A claim that got less than it asked for looks ahead: at the first row that is
-- still to come, and at the leases of the hundred oldest due rows from where it began. Free rows that
-- are due do not count: they were passed by, because somebody has them locked.
-- Then `id` is NULL and `wait` is in microseconds; its floor keeps a locked row from
-- being asked for in a spin. The token of a row is the claim's, and is not sent back.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, set_config('synchronous_commit', 'off', true),
        $8::text IS NOT NULL AND NOT pg_try_advisory_xact_lock(hashtextextended($8, 0))
            AND NOT pg_try_advisory_xact_lock(hashtextextended($8, 1)) AS crowded
), claims AS MATERIALIZED (
    SELECT given.rows, given.ttl * interval '1 microsecond' AS ttl, given.token,
        coalesce(given.at, '-infinity') AS at, coalesce(given.id, -9223372036854775808) AS id, given.place
    FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::timestamptz[], $5::bigint[])
        WITH ORDINALITY AS given(rows, ttl, token, at, id, place)
), wanted AS MATERIALIZED (
    SELECT given.queue, given.place FROM unnest($6::text[], $7::bigint[]) AS given(queue, place)
    WHERE NOT EXISTS (SELECT FROM "outbox_paused" AS paused WHERE paused.queue = given.queue)
), due AS MATERIALIZED (
    SELECT candidate.tid, candidate.previous, candidate.bytes, candidate.at, candidate.id,
        claims.place, claims.ttl, claims.token
    FROM claims
    CROSS JOIN LATERAL (
        SELECT found.tid, found.acquired_token AS previous, found.bytes,
            found.next_attempt_at AS at, found.id
        FROM wanted
        CROSS JOIN LATERAL (
            SELECT o.ctid AS tid, o.id, o.acquired_token, o.next_attempt_at,
                octet_length(o.payload) + CASE
                    WHEN o.headers IS NULL THEN 0
                    WHEN pg_column_size(o.headers) < 512 THEN pg_column_size(o.headers)
                    WHEN pg_column_size(o.headers) < 2000 THEN octet_length(o.headers::text)
                    ELSE least(90 * pg_column_size(o.headers)::bigint, 33554432)::integer
                END AS bytes
            FROM "outbox" AS o
            WHERE o.queue = wanted.queue
              AND o.next_attempt_at <= (SELECT now FROM clock)
              AND (o.next_attempt_at, o.id) > (claims.at, claims.id)
              AND (o.acquired_token IS NULL
                   OR o.acquired_at <= (SELECT now FROM clock) - claims.ttl)
            ORDER BY o.next_attempt_at, o.id
            LIMIT claims.rows
            FOR UPDATE OF o SKIP LOCKED
        ) AS found
        WHERE wanted.place = claims.place
        ORDER BY found.next_attempt_at, found.id
        LIMIT claims.rows
    ) AS candidate
), counts AS MATERIALIZED (
    SELECT due.place, count(*) AS rows, sum(due.bytes) > 33554432 AS large
    FROM due
    GROUP BY due.place
), fitting AS MATERIALIZED (
    SELECT sized.place, sized.tid
    FROM (SELECT due.place, due.tid,
              coalesce(sum(due.bytes) OVER (
                  PARTITION BY due.place ORDER BY due.at, due.id
                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
          FROM due) AS sized
    WHERE sized.before < 33554432
), taken AS (
    UPDATE "outbox" AS o
    SET acquired_token = due.token,
        acquired_at = (SELECT now FROM clock),
        deliveries_count = least(greatest(o.deliveries_count, 0), 9223372036854775806) + 1
    FROM due
    WHERE o.ctid = due.tid
      AND (NOT (SELECT bool_or(counts.large) FROM counts)
           OR due.tid IN (SELECT fitting.tid FROM fitting))
      AND (o.acquired_token IS NULL OR o.acquired_at <= (SELECT now FROM clock) - due.ttl)
    RETURNING due.place, o.id, o.queue, o.payload, o.headers::text AS headers, o.attempts_count,
        o.deliveries_count, o.created_at, o.next_attempt_at, o.first_attempt_at,
        o.last_attempt_at, o.acquired_at, o.timer_id, due.previous
)
SELECT id, queue, payload, headers, attempts_count, deliveries_count, created_at,
    next_attempt_at, first_attempt_at, last_attempt_at, acquired_at, NULL::uuid, timer_id,
    previous, place, NULL::bigint AS wait
FROM taken
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    claims.place, ahead.wait
FROM claims
CROSS JOIN LATERAL (
    SELECT min(greatest(
        extract(epoch FROM next.at - (SELECT now FROM clock)) * 1000000, next.floor))::bigint AS wait
    FROM wanted
    CROSS JOIN LATERAL (
        (SELECT o.next_attempt_at AS at, 0 AS floor
         FROM "outbox" AS o
         WHERE o.queue = wanted.queue AND o.next_attempt_at > (SELECT now FROM clock)
           AND o.next_attempt_at < 'infinity'
         ORDER BY o.next_attempt_at, o.id
         LIMIT 1)
        UNION ALL
        (SELECT least(oldest.acquired_at, (SELECT now FROM clock)) + claims.ttl, 100000
         FROM (SELECT o.acquired_at
               FROM "outbox" AS o
               WHERE o.queue = wanted.queue AND o.next_attempt_at <= (SELECT now FROM clock)
                 AND (o.next_attempt_at, o.id) > (claims.at, claims.id)
               ORDER BY o.next_attempt_at, o.id
               LIMIT 100) AS oldest
         WHERE isfinite(oldest.acquired_at))
    ) AS next
    WHERE wanted.place = claims.place
) AS ahead
WHERE claims.rows = 0
   OR coalesce((SELECT counts.rows FROM counts WHERE counts.place = claims.place), 0) < claims.rows
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    counts.place, 0::bigint
FROM counts JOIN claims USING (place)
WHERE (counts.large OR counts.rows < claims.rows)
  AND counts.rows > (SELECT count(*) FROM taken WHERE taken.place = counts.place)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    0::bigint, NULL
FROM clock
WHERE clock.crowded
