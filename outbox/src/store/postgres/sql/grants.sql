-- Roles for those who publish, those who handle and those who operate, with what each
-- needs and no more. For the owner of the tables, if he may create roles; it can be
-- repeated. The roles cannot log in: grant them to those that can.
--
-- Locks: nothing that any statement waits for. Only the owner migrates and vacuums: grant
-- his role to the consumers' if the engine is to vacuum a busy table beside autovacuum.
DO $$ BEGIN
    CREATE ROLE {producer} NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
DO $$ BEGIN
    CREATE ROLE {consumer} NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
DO $$ BEGIN
    CREATE ROLE {operator} NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
{schema}

-- Ids of tables that Python made come from a sequence: who inserts needs it.
{serials}

-- Publishes. Reads no message.
GRANT INSERT (queue, payload, headers, created_at, next_attempt_at, timer_id),
    SELECT (id, queue, timer_id)
    ON "outbox" TO {producer};
{timers}
-- Handles: claims, settles, publishes what handlers return, buries, sees pauses.
GRANT INSERT (queue, payload, headers, created_at, next_attempt_at, timer_id),
    UPDATE (payload, headers, attempts_count, deliveries_count, created_at, next_attempt_at,
        first_attempt_at, last_attempt_at, acquired_at, acquired_token),
    SELECT, DELETE
    ON "outbox" TO {consumer};
GRANT INSERT (original_id, queue, payload, headers, deliveries_count, created_at, failed_at,
        failure_reason, last_exception, timer_id, error_kind, fingerprint, note),
    -- Gauges count the open ones.
    SELECT (id, queue, status, failed_at)
    ON "outbox_dlq" TO {consumer};
GRANT SELECT ON "outbox_paused" TO {consumer};
-- Of tables that Python made.
{letter_serials}

-- Operates: looks at everything, publishes, cancels timers, replays, resolves, ignores and
-- purges dead letters, pauses queues. It cannot claim. Of what waits it can delete rows, and
-- change when each was last tried.
-- To lock a row, for a look at who has it, takes the right to change a column. To move a
-- timer takes more: a producer's that may.
GRANT INSERT (queue, payload, headers, created_at, next_attempt_at, timer_id),
    UPDATE (last_attempt_at),
    SELECT, DELETE
    ON "outbox" TO {operator};
-- Whether an id was ever given out, and how many a second.
{ids}
GRANT UPDATE (status, resolved_at, note, fingerprint, replayed_id), SELECT, DELETE
    ON "outbox_dlq" TO {operator};
GRANT SELECT, INSERT, UPDATE, DELETE ON "outbox_paused" TO {operator};
-- To see who holds an old snapshot. Takes a superuser.
DO $$ BEGIN
    GRANT pg_read_all_stats TO {operator};
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE 'the doctor sees only sessions of its own: %', SQLERRM;
END $$;
