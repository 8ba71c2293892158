-- Ends pauses, and wakes the readers of the queues when that commits, also those that
-- do not sleep; says which queues were paused.
-- $1 queues, $2 channel, or NULL to notify of nothing.
-- Locks: the rows. Index: the primary key.
WITH resumed AS (
    DELETE FROM "outbox_paused" AS paused WHERE paused.queue = ANY($1::text[])
    RETURNING paused.queue::text AS queue
)
SELECT resumed.queue, CASE WHEN $2 IS NOT NULL THEN pg_notify($2, resumed.queue) IS NULL END
FROM resumed
ORDER BY resumed.queue
