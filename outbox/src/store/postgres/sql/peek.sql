-- Reads the first rows of a queue, waiting and leased ones, in order of due time, with
-- the beginnings of their payloads, and their sizes.
-- $1 queue, $2 rows at most, $3 bytes of each payload at most.
-- Locks nothing. Index: "outbox_due_idx", in order.
SELECT o.id, o.queue, substring(o.payload FROM 1 FOR $3::int), o.headers::text,
    o.attempts_count, o.deliveries_count, o.created_at, o.next_attempt_at, o.first_attempt_at,
    o.last_attempt_at, o.acquired_at, o.acquired_token, o.timer_id,
    octet_length(o.payload)::bigint, clock_timestamp()
FROM "outbox" AS o
WHERE o.queue = $1 AND o.next_attempt_at >= '-infinity'
ORDER BY o.next_attempt_at, o.id
LIMIT $2
