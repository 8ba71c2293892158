-- Releases what a claim took whose answer was lost, as if it had taken nothing.
-- $1 queues, $2 token, $3 deliveries that are not too many: of a row with more nobody
-- would know any more that its leases ran out.
-- $4 and $5 due time and id that the claim began behind, or NULL.
-- Locks: the rows. Indexes: "outbox_due_idx", and the primary key, see ack: a claim takes the
-- oldest due rows behind its place, so the first ten thousand there of each queue are looked at.
-- Whatever is missed comes back when its lease runs out.
UPDATE "outbox" AS o
SET acquired_token = NULL,
    acquired_at = NULL,
    deliveries_count = greatest(least(o.deliveries_count, $3) - 1, 0)
FROM unnest($1::text[]) AS wanted(queue)
CROSS JOIN LATERAL (
    SELECT t.id, t.acquired_token
    FROM "outbox" AS t
    WHERE t.queue = wanted.queue AND t.next_attempt_at <= (SELECT clock_timestamp())
      AND (t.next_attempt_at, t.id) > (coalesce($4, '-infinity'), coalesce($5, -9223372036854775808))
    ORDER BY t.next_attempt_at, t.id
    LIMIT 10000
) AS oldest
WHERE o.id = oldest.id AND oldest.acquired_token = $2
  AND o.acquired_token IS NOT DISTINCT FROM $2
