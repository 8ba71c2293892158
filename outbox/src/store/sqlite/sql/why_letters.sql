-- Finds the dead letters that a row became, and those that it was replayed from, among
-- the newest letters.
-- ?1 id, ?2 letters to read at most, or -1.
-- Locks nothing. Index: the primary key, read backwards: none leads from a row's id to
-- its letter.
SELECT id, original_id, queue, failed_at, failure_reason, error_kind,
    substr(last_exception, 1, 500), status, resolved_at, replayed_id
FROM (SELECT id, original_id, queue, failed_at, failure_reason, error_kind, last_exception,
          status, resolved_at, replayed_id
      FROM "outbox_dlq"
      ORDER BY id DESC
      LIMIT ?2)
WHERE original_id = ?1 OR replayed_id = ?1
ORDER BY id DESC
LIMIT 10
