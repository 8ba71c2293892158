-- Counts what a queue holds: rows that are free, those of them that are due, rows that
-- are held, rows that failed before, microseconds since the oldest free row became due,
-- open dead letters.
-- ?1 queue; ?2 rows to read at most, and letters, or -1 to read all.
-- Locks nothing. Indexes: "outbox_due_idx" and "outbox_dlq_open_idx", in order.
SELECT ?1, coalesce(sum(free), 0), coalesce(sum(free AND at <= now), 0),
    coalesce(sum(NOT free), 0), coalesce(sum(attempts > 0), 0),
    max(now) - min(CASE WHEN free AND at BETWEEN 1 AND now THEN at END),
    (SELECT count(*)
     FROM (SELECT 1 FROM "outbox_dlq" INDEXED BY "outbox_dlq_open_idx"
           WHERE queue = ?1 AND status = 'failed'
           ORDER BY failed_at, id LIMIT ?2)),
    count(*)
FROM (SELECT acquired_token IS NULL AS free, next_attempt_at AS at, attempts_count AS attempts,
          CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now
      FROM "outbox"
      WHERE queue = ?1
      ORDER BY next_attempt_at, id
      LIMIT ?2)
