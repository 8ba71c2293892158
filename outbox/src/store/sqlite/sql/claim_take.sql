-- Leases one row that claim_places found in the same transaction.
-- ?1 id, ?2 token, ?3 the time at which it was found. Index: the primary key.
-- Also run for a range of ids: see batch.rs.
UPDATE "outbox"
SET acquired_token = ?2,
    acquired_at = ?3,
    deliveries_count = min(max(deliveries_count, 0), 9223372036854775806) + 1
WHERE id = ?1
