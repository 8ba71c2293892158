-- Counts what each queue holds: rows that are free, those of them that are due, rows
-- that are held, rows that failed before, microseconds since the oldest free row became
-- due, open dead letters.
-- $1 queues; $2 rows to read of each at most, and letters, or NULL to read all.
-- Locks nothing. Indexes: "outbox_due_idx" and "outbox_dlq_open_idx", in order.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT given.queue, seen.waiting, seen.due, seen.leased, seen.retrying,
    (extract(epoch FROM (SELECT now FROM clock) - seen.oldest) * 1000000)::bigint,
    letters.open, seen.waiting + seen.leased
FROM unnest($1::text[]) AS given(queue)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE first.free) AS waiting,
        count(*) FILTER (WHERE first.free AND first.at <= (SELECT now FROM clock)) AS due,
        count(*) FILTER (WHERE NOT first.free) AS leased,
        count(*) FILTER (WHERE first.attempts > 0) AS retrying,
        min(first.at) FILTER (
            WHERE first.free AND first.at <= (SELECT now FROM clock) AND first.at > 'epoch'
        ) AS oldest
    FROM (SELECT o.acquired_token IS NULL AS free, o.next_attempt_at AS at,
              o.attempts_count AS attempts
          FROM "outbox" AS o
          WHERE o.queue = given.queue AND o.next_attempt_at >= '-infinity'
          ORDER BY o.next_attempt_at, o.id
          LIMIT $2) AS first
) AS seen
CROSS JOIN LATERAL (
    SELECT count(*) AS open
    FROM (SELECT FROM "outbox_dlq" AS d
          WHERE d.queue = given.queue AND d.status = 'failed'
          ORDER BY d.failed_at
          LIMIT $2) AS first
) AS letters
ORDER BY given.queue
