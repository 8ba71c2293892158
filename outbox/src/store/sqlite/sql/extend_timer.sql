-- Moves the live row of a timer to a new time if that is later and nobody works
-- on it: a new message then, which nobody has been given yet, and whose time to expire
-- counts from now. Of two equal delays the second ends later, though this clock may count
-- the same millisecond. ?1 queue, ?2 payload, ?3 headers, ?4 due time or NULL, ?5 delay in
-- microseconds, ?6 timer name. Index: "outbox_timer_id_uq".
UPDATE "outbox"
SET next_attempt_at = coalesce(?4, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?5),
    payload = ?2, headers = ?3, created_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    attempts_count = 0, deliveries_count = 0, first_attempt_at = NULL, last_attempt_at = NULL
WHERE queue = ?1 AND timer_id = ?6 AND acquired_token IS NULL
  AND CASE WHEN ?4 IS NULL
    THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?5 >= next_attempt_at
    ELSE ?4 > next_attempt_at END
RETURNING id
