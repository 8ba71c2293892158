-- Reads open dead letters without a fingerprint, the oldest first.
-- ?1 and ?2 time and id of the letter behind which it begins; ?3 how many.
-- Locks nothing. Index: "outbox_dlq_group_idx", in which they stand together; named
-- first in the order, because a planner takes no NULL for a constant. It is told that
-- many are open, for files that nobody analysed.
SELECT l.id, l.failed_at, l.queue, l.error_kind, l.failure_reason,
    substr(coalesce(l.last_exception, l.note), 1, 8192)
FROM "outbox_dlq" AS l
WHERE likely(l.status = 'failed') AND l.fingerprint IS NULL
  AND (l.failed_at, l.id) > (?1, ?2) -- if after
ORDER BY l.fingerprint, l.failed_at, l.id
LIMIT ?3
