-- Deletes what a measurement left. $1 its queue, which nobody else has; $2 rows at most.
-- Locks: the rows, passing by those that the engine has locked. Index: "outbox_due_idx".
DELETE FROM "outbox" AS o
WHERE o.id = ANY(ARRAY(
    SELECT t.id FROM "outbox" AS t
    WHERE t.queue = $1 AND t.next_attempt_at IS NOT NULL
    ORDER BY t.next_attempt_at, t.id
    LIMIT $2
    FOR UPDATE OF t SKIP LOCKED
))
