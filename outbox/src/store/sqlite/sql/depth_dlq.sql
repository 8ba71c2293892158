-- How many dead letters of a queue nobody has dealt with, up to a number.
-- ?1 queue; ?2 letters that are read at most.
-- Locks: none. Index: "outbox_dlq_open_idx".
SELECT count(*)
FROM (
    SELECT id
    FROM "outbox_dlq"
    WHERE queue = ?1 AND status = 'failed'
    ORDER BY failed_at, id
    LIMIT ?2
)
