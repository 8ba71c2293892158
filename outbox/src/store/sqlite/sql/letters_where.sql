  AND l.id IN (SELECT value FROM json_each(?1)) -- if ids
  AND likelihood(l.queue = ?2, 0.05) -- if queue
  AND l.failure_reason = ?3 -- if reason
  AND l.error_kind = ?4 -- if error_kind
  AND likelihood(l.fingerprint = ?5, 0.01) -- if fingerprint
  AND l.failed_at >= ?6 -- if since
  AND l.failed_at < ?7 -- if until
  AND likelihood(l.status = 'failed', 0.2) -- if failed
  AND likelihood(l.status = 'resolved', 0.2) -- if resolved
  AND likelihood(l.status = 'ignored', 0.2) -- if ignored
