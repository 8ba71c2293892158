-- As the engine does: one statement.
WITH gone AS (DELETE FROM outbox RETURNING *)
INSERT INTO outbox_dlq
    (original_id, queue, payload, headers, deliveries_count, created_at, failure_reason, status)
SELECT id, queue, payload, headers, 1, created_at, 'rejected', '{status}' FROM gone
