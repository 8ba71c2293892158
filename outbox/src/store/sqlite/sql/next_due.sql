-- Microseconds until a row of this queue can next be claimed, or NULL.
-- ?1 queue, NULL if it is paused; ?2 lease in microseconds.
-- Looks at the first row that is still to come, or came due in the last second: it
-- may have been to come when the claim looked, and no wake tells of it. Looks also
-- at the leases of the hundred oldest due rows. Index: "outbox_due_idx", read in order:
-- where no order is asked for, a table that ANALYZE saw nearly empty is read whole.
SELECT min(wait) FROM (
    SELECT (SELECT next_attempt_at
            FROM "outbox"
            WHERE queue = ?1 AND next_attempt_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER)
            ORDER BY next_attempt_at, id
            LIMIT 1) - CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS wait
    UNION ALL
    SELECT (SELECT 20000
            FROM "outbox"
            WHERE queue = ?1 AND acquired_token IS NULL
              AND next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
              AND next_attempt_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 1000000
              AND next_attempt_at > created_at + 1000
            ORDER BY next_attempt_at, id
            LIMIT 1)
    UNION ALL
    SELECT max(min(min(acquired_at), CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + ?2
        - CAST(unixepoch('subsec') * 1000000 AS INTEGER), 100000)
    FROM (SELECT acquired_at FROM "outbox"
          WHERE queue = ?1
            AND next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
          ORDER BY next_attempt_at, id
          LIMIT 100))
WHERE ?1 NOT IN (SELECT queue FROM "outbox_paused")
