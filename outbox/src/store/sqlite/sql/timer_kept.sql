-- The live row of a timer that extend_timer does not move although nobody works on it, because it
-- is due at that time or later. Parameters as there. Locks nothing. Index: "outbox_timer_id_uq".
SELECT id FROM "outbox"
WHERE queue = ?1 AND timer_id = ?6 AND acquired_token IS NULL
  AND CASE WHEN ?4 IS NULL
    THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?5 < next_attempt_at
    ELSE ?4 <= next_attempt_at END
