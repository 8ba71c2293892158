-- Counts the rows that are claimed before a row: free ones of its queue.
-- ?1 queue, ?2 its due time, ?3 its id, ?4 rows to read at most.
-- Locks nothing. Index: "outbox_due_idx", in order.
SELECT coalesce(sum(free), 0), count(*)
FROM (SELECT acquired_token IS NULL AS free
      FROM "outbox"
      WHERE queue = ?1 AND (next_attempt_at, id) < (?2, ?3)
      ORDER BY next_attempt_at, id
      LIMIT ?4)
