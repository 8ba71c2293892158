-- Deletes handled rows whose lease still holds.
-- $1 ids, $2 tokens, in pairs.
-- Locks: the rows, in order of id, so that two batches cannot deadlock.
-- Index: the primary key.
WITH mine AS MATERIALIZED (
    SELECT o.id, o.acquired_token AS token
    FROM unnest($1::bigint[], $2::uuid[]) AS settled(id, token)
    JOIN "outbox" AS o ON o.id = settled.id AND o.acquired_token = settled.token
    ORDER BY o.id
    FOR UPDATE OF o
)
DELETE FROM "outbox" AS o
USING mine
WHERE o.id = mine.id AND o.acquired_token = mine.token
RETURNING mine.id, mine.token
