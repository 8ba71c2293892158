-- Finds the places of due rows of one queue, in order, in one JSON array: free ones
-- and those whose lease ran out.
-- ?1 queue, nothing if it is paused; ?2 lease in microseconds, ?3 and ?4 due time and id to begin behind,
-- ?5 rows at most.
-- Without a lock, to see whether there is anything to claim; and in a BEGIN IMMEDIATE
-- transaction, to share a claim out among its queues.
-- Index: "outbox_due_idx" (queue, next_attempt_at, id), read in order.
SELECT json_group_array(json_array(next_attempt_at, id))
FROM (
    SELECT next_attempt_at, id
    FROM "outbox"
    WHERE queue = ?1
      AND next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
      AND (acquired_token IS NULL
           OR acquired_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2)
      AND (next_attempt_at, id) > (?3, ?4)
      AND ?1 NOT IN (SELECT queue FROM "outbox_paused")
    ORDER BY next_attempt_at, id
    LIMIT ?5)
