-- Releases what a claim took whose answer was lost, as if it had taken nothing.
-- ?1 queue, ?2 token, ?3 deliveries that are not too many: of a row with more nobody
-- would know any more that its leases ran out, ?4 and ?5 due time and id that the claim began behind.
-- Index: "outbox_due_idx"; the oldest ten thousand due rows of the queue behind that place are looked at.
UPDATE "outbox"
SET acquired_token = NULL,
    acquired_at = NULL,
    deliveries_count = max(min(deliveries_count, ?3) - 1, 0)
WHERE acquired_token = ?2 AND id IN (
    SELECT id FROM "outbox"
    WHERE queue = ?1
      AND (next_attempt_at, id) > (?4, ?5)
      AND next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
    ORDER BY next_attempt_at, id
    LIMIT 10000)
