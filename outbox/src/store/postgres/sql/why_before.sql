-- Counts the rows that are claimed before a row: free ones of its queue.
-- $1 queue, $2 its due time, $3 its id, $4 rows to read at most.
-- Locks nothing. Index: "outbox_due_idx", in order.
SELECT count(*) FILTER (WHERE first.free), count(*)
FROM (SELECT o.acquired_token IS NULL AS free
      FROM "outbox" AS o
      WHERE o.queue = $1 AND o.next_attempt_at >= '-infinity'
        AND (o.next_attempt_at, o.id) < ($2, $3)
      ORDER BY o.next_attempt_at, o.id
      LIMIT $4) AS first
