-- Moves the live row of a timer to a new time if that is later and nobody works
-- on it: a new message then, which nobody has been given yet, and whose time to expire
-- counts from now. Of two equal delays the second ends later, though this clock may count
-- the same millisecond. ?1 queue, ?2 payload, ?3 headers, ?4 due time or NULL, ?5 delay in
-- microseconds, ?6 timer name. Index: "outbox_timer_id_uq".
UPDATE "outbox"
SET (next_attempt_at, payload, headers, created_at, attempts_count, deliveries_count,
        first_attempt_at, last_attempt_at) = (
    SELECT later.at, ?2, ?3, CAST(unixepoch('subsec') * 1000000 AS INTEGER), 0, 0, NULL, NULL
    FROM (SELECT coalesce(?4, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?5) AS at) AS later
    WHERE later.at > "outbox".next_attempt_at
        OR (?4 IS NULL AND later.at = "outbox".next_attempt_at)
    UNION ALL
    SELECT "outbox".next_attempt_at, "outbox".payload, "outbox".headers,
        "outbox".created_at, "outbox".attempts_count, "outbox".deliveries_count,
        "outbox".first_attempt_at, "outbox".last_attempt_at
    LIMIT 1)
WHERE queue = ?1 AND timer_id = ?6 AND acquired_token IS NULL
RETURNING id
