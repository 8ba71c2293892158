-- Finds the dead letters that a row became, and those that it was replayed from, among
-- the newest letters.
-- $1 id, $2 letters to read at most, or NULL.
-- Locks nothing. Index: the primary key, read backwards: none leads from a row's id to
-- its letter.
SELECT d.id, d.original_id, d.queue, d.failed_at, d.failure_reason, d.error_kind,
    left(d.last_exception, 500) AS last_exception, d.status, d.resolved_at, d.replayed_id
FROM (SELECT newest.id, newest.original_id, newest.queue, newest.failed_at,
          newest.failure_reason, newest.error_kind, newest.last_exception, newest.status,
          newest.resolved_at, newest.replayed_id
      FROM "outbox_dlq" AS newest
      ORDER BY newest.id DESC
      LIMIT $2) AS d
WHERE d.original_id = $1 OR d.replayed_id = $1
ORDER BY d.id DESC
LIMIT 10
