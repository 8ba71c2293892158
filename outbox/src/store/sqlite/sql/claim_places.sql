-- Finds due rows of one queue, in order, in one JSON array, each with the length of its
-- payload and headers and its last token: free ones and those whose lease ran out. And the time.
-- ?1 queue, nothing if it is paused; ?2 lease in microseconds, ?3 and ?4 due time and id to begin behind,
-- ?5 rows at most.
-- Without a lock, to see whether there is anything to claim; and in the BEGIN IMMEDIATE
-- transaction of a claim, so that nobody writes before claim_take. The lengths are known
-- without reading either, as that of a text is only to octet_length.
-- Index: "outbox_due_idx" (queue, next_attempt_at, id), read in order. Rows of one time and
-- later ones apart: with (next_attempt_at, id) > (?3, ?4) SQLite would walk over all of that
-- time, because it knows the id of a table by another number than an index does.
SELECT json_group_array(json_array(next_attempt_at, id, bytes,
        CASE WHEN acquired_token IS NOT NULL THEN hex(acquired_token) END)),
    CAST(unixepoch('subsec') * 1000000 AS INTEGER)
FROM (
    SELECT next_attempt_at, id, octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes,
        acquired_token
    FROM "outbox"
    WHERE queue = ?1
      AND next_attempt_at = ?3 AND id > ?4
      AND next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
      AND (acquired_token IS NULL
           OR acquired_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2)
      AND ?1 NOT IN (SELECT queue FROM "outbox_paused")
    UNION ALL
    SELECT next_attempt_at, id, octet_length(payload) + coalesce(octet_length(headers), 0),
        acquired_token
    FROM "outbox"
    WHERE queue = ?1
      AND next_attempt_at > ?3
      AND next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
      AND (acquired_token IS NULL
           OR acquired_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2)
      AND ?1 NOT IN (SELECT queue FROM "outbox_paused")
    ORDER BY next_attempt_at, id
    LIMIT ?5)
