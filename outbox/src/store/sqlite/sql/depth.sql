-- What is in a queue, as far as its first rows: rows, due, leased, and the age of the
-- oldest that waits, in microseconds. A row that is due since 1970 or before, which is what
-- "always" may be, has no age.
-- ?1 queue; ?2 rows that are read at most.
-- Locks: none. Index: "outbox_due_idx", read in order.
SELECT count(*), count(since), count(acquired_token),
    coalesce(max(CAST(unixepoch('subsec') * 1000000 AS INTEGER)
        - min(since) FILTER (WHERE since > 0), 0), 0)
FROM (
    SELECT acquired_token,
        CASE WHEN acquired_token IS NULL
                AND next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
            THEN next_attempt_at END AS since
    FROM "outbox"
    WHERE queue = ?1
    ORDER BY next_attempt_at, id
    LIMIT ?2
)
