  AND l.id IN (SELECT value FROM json_each(?1)) -- if ids
  AND l.queue = ?2 -- if queue
  AND l.failure_reason = ?3 -- if reason
  AND l.error_kind = ?4 -- if error_kind
  AND l.fingerprint = ?5 -- if fingerprint
  AND l.failed_at >= ?6 -- if since
  AND l.failed_at < ?7 -- if until
  AND l.status = 'failed' -- if failed
  AND l.status = 'resolved' -- if resolved
  AND l.status = 'ignored' -- if ignored
