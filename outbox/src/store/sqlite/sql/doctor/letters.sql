-- Failed dead letters behind an id, and of the queues asked for what they hold.
-- ?1 id to begin behind, ?2 last id, ?3 queues as a JSON list, ?4 rows at most.
-- Locks nothing. Index: the primary key, read in order, past letters that are done with;
-- the sign keeps the planner from sorting what another index finds. From the start as rows.sql.
SELECT id, queue, CASE WHEN queue IN (SELECT value FROM json_each(?3)) THEN payload END,
    CASE WHEN queue IN (SELECT value FROM json_each(?3)) THEN headers END
FROM "outbox_dlq"
WHERE id > ?1 AND id <= ?2 AND +status = 'failed'
ORDER BY id
LIMIT ?4
