-- Finds due rows of one queue: free ones and those whose lease ran out.
-- ?1 queue, ?2 lease in microseconds, ?3 and ?4 due time and id to begin behind,
-- ?5 rows at most.
-- First without a lock, to see whether there is anything to claim; then in a BEGIN
-- IMMEDIATE transaction, so that nobody writes before claim_take.
-- Index: "outbox_due_idx" (queue, next_attempt_at, id), read in order.
SELECT id, next_attempt_at, acquired_token
FROM "outbox"
WHERE queue = ?1
  AND next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  AND (acquired_token IS NULL
       OR acquired_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2)
  AND (next_attempt_at, id) > (?3, ?4)
ORDER BY next_attempt_at, id
LIMIT ?5
