-- Puts open dead letters back into the outbox, the oldest first, but timers by name and before
-- others, as every statement locks them: the statement that inserts a row resolves its letter. One whose timer name is taken stays as it is.
-- $1 to $7 the filter, see letters_where; $8 and $9 time and id of the letter behind
-- which it begins; $10 how many; $11 another queue or NULL; $12 another payload or NULL;
-- $13 channel, $14 start of the sleepers' locks or NULL, as in insert_batch_mixed; $15 after how
-- many bytes it ends: the letters behind those wait for the next one.
-- Locks: the letters, passing by those that others have locked; rows of the same timer
-- names. Index: "outbox_dlq_open_idx", "outbox_dlq_group_idx" or
-- "outbox_dlq_status_idx", read in order; "outbox_timer_id_uq" decides.
-- A row finds its letter by the header `outbox-letter`. The letters are looked up by an
-- array: a planner that expects many would read the whole table to join them. In months an id
-- is not unique, as in letters_purge: of two letters that have it the later one stays.
-- A letter that stays open would be put back again by the next replay, and a message that is
-- left out is not told from one whose timer is live: it fails where a trigger of somebody's
-- does either, as bury does.
WITH found AS MATERIALIZED (
    SELECT l.id, l.failed_at, l.original_id, l.queue, l.payload, l.timer_id,
        CASE WHEN jsonb_typeof(l.headers) = 'object' THEN l.headers ELSE '{}' END AS headers
    FROM "outbox_dlq" AS l
    WHERE true
-- the filter
      AND (l.failed_at, l.id) > ($8, $9) -- if after
    ORDER BY l.failed_at, l.id
    LIMIT $10
    FOR UPDATE SKIP LOCKED
), locked AS MATERIALIZED (
    SELECT id, failed_at, original_id, queue, payload, timer_id, headers
    FROM (SELECT id, failed_at, original_id, queue, payload, timer_id, headers,
            sum(octet_length(payload)) OVER (ORDER BY failed_at, id) - octet_length(payload) AS before
        FROM found) AS sized
    WHERE before <= $15
), each AS MATERIALIZED (
    SELECT DISTINCT ON (id) id, failed_at, original_id, queue, payload, timer_id, headers
    FROM locked ORDER BY id, failed_at
), inserted AS (
    INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at, timer_id)
    SELECT coalesce($11, queue), coalesce($12, payload), headers || jsonb_build_object(
            'outbox-original-id', coalesce(headers ->> 'outbox-original-id', original_id::text),
            'outbox-replays', (1 + CASE WHEN headers ->> 'outbox-replays' ~ '^[0-9]{1,9}$'
                THEN (headers ->> 'outbox-replays')::bigint ELSE 0 END)::text,
            'outbox-letter', id::text),
        clock_timestamp(), clock_timestamp(), timer_id
    FROM each
    ORDER BY timer_id IS NULL,
        CASE WHEN timer_id IS NOT NULL THEN coalesce($11, queue) END COLLATE "C",
        timer_id COLLATE "C", failed_at, id
    ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO NOTHING
    RETURNING id, queue, (headers ->> 'outbox-letter')::bigint AS letter
), made AS MATERIALIZED (
    SELECT inserted.id, inserted.queue, letter, each.failed_at
    FROM inserted
    JOIN each ON each.id = letter
), resolved AS (
    UPDATE "outbox_dlq" AS l
    SET status = 'resolved', resolved_at = clock_timestamp(), replayed_id = made.id
    FROM made
    WHERE l.id = ANY(ARRAY(SELECT letter FROM made)) AND l.id = made.letter
      AND l.failed_at = made.failed_at
    RETURNING l.id
), woken AS MATERIALIZED (
    SELECT count(CASE WHEN pg_try_advisory_lock(named.lock) THEN pg_advisory_unlock(named.lock)
            WHEN $13 IS NULL THEN true
            ELSE pg_notify($13, named.queue) IS NULL END)
    FROM (SELECT queue,
            $14::bigint | (get_byte(sha256(convert_to(queue, 'UTF8')), 0) & 63) AS lock
        FROM (SELECT DISTINCT queue FROM made) AS queues) AS named
)
SELECT locked.id, locked.failed_at,
    CASE WHEN (SELECT count(*) FROM resolved) <> (SELECT count(*) FROM inserted)
        THEN ((SELECT count(*) FROM inserted) || ' messages and not all of their letters were'
            ' closed: a trigger of a table keeps some open, or somebody changes them now')::bigint
    WHEN EXISTS (SELECT FROM each
            WHERE timer_id IS NULL AND id NOT IN (SELECT letter FROM made))
        THEN ((SELECT count(*) FROM each) || ' letters and not all were put back: a trigger of the'
            ' outbox leaves some out')::bigint
    ELSE made.id END
FROM locked
LEFT JOIN made ON made.letter = locked.id AND made.failed_at = locked.failed_at
CROSS JOIN woken
ORDER BY locked.failed_at, locked.id
