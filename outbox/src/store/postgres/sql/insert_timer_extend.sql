-- Publishes a message with a timer name, or moves the live row that has it to
-- the new time if that is later and nobody works on it: a new message then, which nobody
-- has been given yet, and whose time to expire counts from now. Says true of a new row, false of
-- one that was moved, and NULL of one that is as it was.
-- $1 to $7 as insert_due, $8 timer name.
-- Somebody who works on it is no conflict, but nothing is written: a conflict locks its row
-- until the caller commits, also if it comes to nothing. Nobody is asked for under an older
-- snapshot: it does not tell who works on it now, and serializable transactions would meet there.
-- Locks: the conflicting row. Index: "outbox_timer_id_uq" decides, and finds the row, see
-- cancel_timer. xmax is 0 for a row that was inserted.
WITH made AS MATERIALIZED (SELECT clock_timestamp() AS now)
INSERT INTO "outbox" AS o (queue, payload, headers, created_at, next_attempt_at, timer_id)
SELECT $1, $2, $3::jsonb, made.now,
    coalesce($6, made.now + $7 * interval '1 microsecond'), $8
FROM made
WHERE current_setting('transaction_isolation') NOT LIKE 'read %' OR NOT EXISTS (
    SELECT FROM "outbox" AS held
    WHERE held.queue = $1 AND held.timer_id = $8
      AND CASE WHEN held.acquired_token IS NOT NULL THEN true END)
ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO UPDATE
SET (next_attempt_at, payload, headers, created_at, attempts_count, deliveries_count,
        first_attempt_at, last_attempt_at) = (
    SELECT excluded.next_attempt_at, excluded.payload, excluded.headers, excluded.created_at,
        0, 0, NULL::timestamptz, NULL::timestamptz
    WHERE excluded.next_attempt_at > o.next_attempt_at
    UNION ALL
    SELECT o.next_attempt_at, o.payload, o.headers, o.created_at, o.attempts_count,
        o.deliveries_count, o.first_attempt_at, o.last_attempt_at
    WHERE excluded.next_attempt_at <= o.next_attempt_at)
WHERE o.acquired_token IS NULL
RETURNING o.id,
    CASE WHEN o.xmax = 0 THEN true WHEN o.created_at = (SELECT now FROM made) THEN false END,
    CASE WHEN pg_try_advisory_lock($5) THEN pg_advisory_unlock($5)
        WHEN $4 IS NULL THEN true
        ELSE pg_notify($4, $1) IS NULL END
