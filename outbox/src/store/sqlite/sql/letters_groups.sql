-- Groups open dead letters by their fingerprints, the largest groups first.
-- ?1 to ?7 the filter, see letters_where; ?8 how many groups.
-- Locks nothing. Index: "outbox_dlq_group_idx", each entry of the filter once;
-- "outbox_dlq_open_idx" with a queue. Then "outbox_dlq_group_idx" for the newest letter
-- of each group, of which the planner is told that no other word finds fewer.
WITH grouped AS MATERIALIZED (
    SELECT l.fingerprint AS fingerprint, count(*) AS letters, min(l.failed_at) AS first_seen,
        max(l.failed_at) AS last_seen
    FROM "outbox_dlq" AS l
    WHERE l.fingerprint IS NOT NULL
-- the filter
    GROUP BY l.fingerprint
), totals AS (
    SELECT coalesce(sum(letters), 0) AS letters, count(*) AS problems FROM grouped
), largest AS (
    SELECT fingerprint, letters, first_seen, last_seen,
        (SELECT l.id
         FROM "outbox_dlq" AS l
         WHERE likelihood(l.fingerprint = grouped.fingerprint, 0.00001)
           AND l.failed_at = grouped.last_seen
-- the filter
         ORDER BY l.failed_at DESC, l.id DESC
         LIMIT 1) AS newest
    FROM grouped
    ORDER BY letters DESC, fingerprint
    LIMIT ?8
)
SELECT totals.letters, totals.problems, g.fingerprint, g.letters, g.first_seen, g.last_seen,
    n.queue, n.error_kind, n.failure_reason, n.id,
    substr(coalesce(n.last_exception, n.note), 1, 500)
FROM totals
LEFT JOIN largest AS g ON true
LEFT JOIN "outbox_dlq" AS n ON n.id = g.newest
ORDER BY g.letters DESC, g.fingerprint
