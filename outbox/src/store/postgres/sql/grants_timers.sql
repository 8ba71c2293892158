-- Moves timers that are published again, cancels them, and looks at what waits. With that
-- a producer can change or delete any message that waits.
-- Locks: nothing that any statement waits for.
GRANT UPDATE (payload, headers, attempts_count, deliveries_count, created_at, next_attempt_at,
        first_attempt_at, last_attempt_at),
    SELECT, DELETE
    ON "outbox" TO {producer};
