-- Looks for traces of subscribers of a queue: the leases among its oldest thousand rows.
-- ?1 queue, ?2 a row that does not count, ?3 lease in microseconds.
-- Locks nothing. Index: "outbox_due_idx", in order.
SELECT count(*)
FROM (SELECT id, acquired_at
      FROM "outbox"
      WHERE queue = ?1
      ORDER BY next_attempt_at, id
      LIMIT 1000)
WHERE acquired_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?3 AND id <> ?2
