-- Failed dead letters behind an id, and of the queues asked for what they hold.
-- $1 id to begin behind, $2 last id, $3 queues, $4 rows at most.
-- Locks nothing. Index: the primary key, read in order, past letters that are done with.
SELECT id, queue, CASE WHEN queue = ANY($3) THEN payload END,
    CASE WHEN queue = ANY($3) THEN headers::text END
FROM "outbox_dlq"
WHERE id > $1 AND id <= $2 AND status = 'failed'
ORDER BY id
LIMIT $4
