-- Puts the message of a dead letter back into the outbox, unless a live row has its
-- timer name. ?1 id of the letter, ?2 another queue or NULL, ?3 another payload or NULL.
-- Index: the primary key; "outbox_timer_id_uq" decides.
INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at, timer_id)
SELECT coalesce(?2, l.queue), coalesce(?3, l.payload),
    json_set(l.headers,
        '$."outbox-original-id"',
            CAST(coalesce(l.headers ->> 'outbox-original-id', l.original_id) AS TEXT),
        '$."outbox-replays"', CAST(1 + CASE
            WHEN json_type(l.headers, '$."outbox-replays"') IN ('text', 'integer')
                AND length(l.headers ->> 'outbox-replays') BETWEEN 1 AND 9
                AND l.headers ->> 'outbox-replays' NOT GLOB '*[^0-9]*'
            THEN CAST(l.headers ->> 'outbox-replays' AS INTEGER) ELSE 0 END AS TEXT),
        '$."outbox-letter"', CAST(l.id AS TEXT)),
    CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    CAST(unixepoch('subsec') * 1000000 AS INTEGER), l.timer_id
FROM (SELECT id, original_id, queue, payload, timer_id,
        CASE WHEN json_valid(headers) AND json_type(headers) = 'object'
            THEN headers ELSE '{}' END AS headers
    FROM "outbox_dlq"
    WHERE id = ?1) AS l
WHERE true
ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO NOTHING
RETURNING id
