-- Reads the first rows of one queue that claim_take leased, in order, once that is committed:
-- those of one time. claim_read_later reads the others.
-- An update of a row holds it twice, and so would its answer; so would a union of both.
-- ?1 queue, ?2 token, ?3 and ?4 due time and id of the first, ?5 how many they are: behind so
-- many nothing is read.
-- What the claim itself does not need is one text: each value of an answer is allocated
-- by one thread and freed by another, under a lock.
-- Index: "outbox_due_idx" (queue, next_attempt_at, id), read in order. Not by a list of
-- ids: for each of them a table that ANALYZE once saw nearly empty is read whole.
SELECT payload, headers,
    json_array(id, attempts_count, deliveries_count, created_at, first_attempt_at,
        last_attempt_at, timer_id)
FROM "outbox"
WHERE queue = ?1
  AND acquired_token = ?2
  AND next_attempt_at = ?3 AND id >= ?4
ORDER BY next_attempt_at, id
LIMIT ?5
