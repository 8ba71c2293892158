-- Publishes many messages with one statement; taken timer names insert nothing.
-- ?1 an array of {queue, payload (hex), headers, at, delay, timer_id}.
-- Index: "outbox_timer_id_uq" decides.
INSERT INTO "outbox" (queue, payload, headers, created_at, next_attempt_at, timer_id)
SELECT m.value ->> 'queue', unhex(m.value ->> 'payload'), m.value ->> 'headers',
    CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    coalesce(m.value ->> 'at',
        CAST(unixepoch('subsec') * 1000000 AS INTEGER) + (m.value ->> 'delay')),
    m.value ->> 'timer_id'
FROM json_each(?1) AS m
WHERE true
ORDER BY m.key
ON CONFLICT (queue, timer_id) WHERE timer_id IS NOT NULL DO NOTHING
RETURNING id, queue, timer_id
