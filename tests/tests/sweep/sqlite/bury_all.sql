-- As the engine does: in one transaction.
BEGIN IMMEDIATE;
INSERT INTO outbox_dlq
    (original_id, queue, payload, headers, deliveries_count, created_at, failed_at,
     failure_reason, status)
SELECT id, queue, payload, headers, 1, created_at, created_at, 'rejected', '{status}' FROM outbox;
DELETE FROM outbox;
COMMIT
