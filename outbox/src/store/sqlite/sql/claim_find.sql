-- Reads due rows of one queue: free ones and those whose lease ran out.
-- ?1 queue, nothing if it is paused; ?2 lease in microseconds, ?3 and ?4 due time and id to begin behind,
-- ?5 rows at most.
-- In a BEGIN IMMEDIATE transaction, so that nobody writes before claim_take.
-- What the claim itself does not need is one text: each value of an answer is allocated
-- by one thread and freed by another, under a lock.
-- Index: "outbox_due_idx" (queue, next_attempt_at, id), read in order.
SELECT id, CAST(unixepoch('subsec') * 1000000 AS INTEGER), payload, headers,
    json_array(attempts_count, deliveries_count, created_at, next_attempt_at,
        first_attempt_at, last_attempt_at, hex(acquired_token), timer_id)
FROM "outbox"
WHERE queue = ?1
  AND next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  AND (acquired_token IS NULL
       OR acquired_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2)
  AND (next_attempt_at, id) > (?3, ?4)
  AND ?1 NOT IN (SELECT queue FROM "outbox_paused")
ORDER BY next_attempt_at, id
LIMIT ?5
