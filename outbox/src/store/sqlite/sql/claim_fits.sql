-- Counts the due rows of one queue, in order, whose payloads come to 32 MiB, and all that
-- there are: of large ones more than the caller can hold would come.
-- Parameters, transaction and index as in claim_find. The length is known without reading
-- the payload.
SELECT count(*) FILTER (WHERE coalesce(before, 0) < 33554432), count(*)
FROM (
    SELECT sum(length(payload)) OVER (
        ORDER BY next_attempt_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM "outbox"
    WHERE queue = ?1
      AND next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
      AND (acquired_token IS NULL
           OR acquired_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2)
      AND (next_attempt_at, id) > (?3, ?4)
      AND ?1 NOT IN (SELECT queue FROM "outbox_paused")
    ORDER BY next_attempt_at, id
    LIMIT ?5)
