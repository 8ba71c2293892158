-- Rows behind an id, and of the queues asked for what they hold.
-- ?1 id to begin behind, ?2 last id, ?3 queues as a JSON list, ?4 rows at most.
-- Locks nothing. Index: the primary key, read in order; from the start where ANALYZE once saw
-- one row or two: nothing keeps the planner from that, so pages grow then.
SELECT id, queue, CASE WHEN queue IN (SELECT value FROM json_each(?3)) THEN payload END,
    CASE WHEN queue IN (SELECT value FROM json_each(?3)) THEN headers END
FROM "outbox"
WHERE id > ?1 AND id <= ?2
ORDER BY id
LIMIT ?4
