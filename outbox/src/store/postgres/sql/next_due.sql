-- Microseconds until a row of these queues can next be claimed, or NULL.
-- $1 queues, $2 lease in microseconds.
-- Looks at the first row that is still to come, or came due in the last second: it
-- may have been to come when the claim looked, and no wake tells of it. Other free
-- rows that are due do not count: a claim has just passed them by, because somebody
-- has them locked. Looks also at the leases of the hundred oldest due rows.
-- The floors keep a locked row from being asked for in a spin. Locks nothing.
-- Index: "outbox_due_idx".
SELECT min(greatest(extract(epoch FROM next.at - clock_timestamp()) * 1000000, next.floor))::bigint
FROM unnest($1::text[]) AS wanted(queue)
CROSS JOIN LATERAL (
    (SELECT o.next_attempt_at AS at, 0 AS floor
     FROM "outbox" AS o
     WHERE o.queue = wanted.queue AND o.next_attempt_at > (SELECT clock_timestamp())
       AND o.next_attempt_at < 'infinity'
     ORDER BY o.next_attempt_at, o.id
     LIMIT 1)
    UNION ALL
    (SELECT o.next_attempt_at, 20000
     FROM "outbox" AS o
     WHERE o.queue = wanted.queue AND o.acquired_token IS NULL
       AND o.next_attempt_at <= (SELECT clock_timestamp())
       AND o.next_attempt_at > (SELECT clock_timestamp() - interval '1 second')
       AND o.next_attempt_at > o.created_at + interval '1 millisecond'
     ORDER BY o.next_attempt_at, o.id
     LIMIT 1)
    UNION ALL
    (SELECT oldest.acquired_at + $2 * interval '1 microsecond', 100000
     FROM (SELECT o.acquired_at
           FROM "outbox" AS o
           WHERE o.queue = wanted.queue AND o.next_attempt_at <= (SELECT clock_timestamp())
           ORDER BY o.next_attempt_at, o.id
           LIMIT 100) AS oldest
     WHERE oldest.acquired_at IS NOT NULL)
) AS next
