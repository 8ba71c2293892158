-- As on PostgreSQL, but sessions have no names and transactions no numbers. A statement
-- has one time, so `at` is the time that the change itself wrote, cut to milliseconds, unless
-- that is of a statement before it in its transaction: a second before at most.
CREATE TABLE biz (key text PRIMARY KEY, queue text NOT NULL, act text NOT NULL,
    delay integer NOT NULL, called integer NOT NULL);
CREATE TABLE effect (key text NOT NULL);
CREATE TABLE cancelled (key text NOT NULL);
CREATE TABLE audit (
    seq integer PRIMARY KEY AUTOINCREMENT,
    at integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    stmt integer NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 1000000),
    xid integer NOT NULL DEFAULT 0, app text NOT NULL DEFAULT '', op text NOT NULL, id integer NOT NULL, queue text NOT NULL, key text, timer text, body text,
    reason text, old_token text, new_token text, old_leased integer, new_leased integer,
    old_due integer, new_due integer, old_deliveries integer, new_deliveries integer,
    old_attempts integer, new_attempts integer
);

CREATE TRIGGER audit_insert AFTER INSERT ON outbox BEGIN
    INSERT INTO audit (op, id, queue, key, timer, body, new_token, new_leased, new_due,
        new_deliveries, new_attempts)
    VALUES ('INSERT', NEW.id, NEW.queue,
        coalesce(NEW.headers->>'key', iif(NEW.queue = 'receipts', CAST(NEW.payload AS text)->>'key', NULL)),
        NEW.timer_id, concat_ws('|', NEW.queue, hex(substr(NEW.payload, 1, 300)), length(NEW.payload),
            NEW.headers, NEW.created_at, NEW.timer_id),
        hex(NEW.acquired_token), NEW.acquired_at, NEW.next_attempt_at, NEW.deliveries_count,
        NEW.attempts_count);
END;

CREATE TRIGGER audit_update AFTER UPDATE ON outbox BEGIN
    INSERT INTO audit (op, id, queue, key, timer, old_token, new_token, old_leased, new_leased,
        old_due, new_due, old_deliveries, new_deliveries, old_attempts, new_attempts)
    VALUES ('UPDATE', NEW.id, NEW.queue,
        coalesce(NEW.headers->>'key', iif(NEW.queue = 'receipts', CAST(NEW.payload AS text)->>'key', NULL)),
        NEW.timer_id, nullif(hex(OLD.acquired_token), ''), nullif(hex(NEW.acquired_token), ''),
        OLD.acquired_at, NEW.acquired_at, OLD.next_attempt_at, NEW.next_attempt_at,
        OLD.deliveries_count, NEW.deliveries_count, OLD.attempts_count, NEW.attempts_count);
END;

CREATE TRIGGER audit_delete AFTER DELETE ON outbox BEGIN
    INSERT INTO audit (op, id, queue, key, timer, old_token, old_leased, old_due, old_deliveries,
        old_attempts)
    VALUES ('DELETE', OLD.id, OLD.queue,
        coalesce(OLD.headers->>'key', iif(OLD.queue = 'receipts', CAST(OLD.payload AS text)->>'key', NULL)),
        OLD.timer_id, nullif(hex(OLD.acquired_token), ''), OLD.acquired_at, OLD.next_attempt_at,
        OLD.deliveries_count, OLD.attempts_count);
END;

CREATE TRIGGER audit_letter AFTER INSERT ON outbox_dlq BEGIN
    INSERT INTO audit (op, id, queue, key, timer, body, reason)
    VALUES ('LETTER', NEW.original_id, NEW.queue, NEW.headers->>'key', NEW.timer_id,
        concat_ws('|', NEW.queue, hex(substr(NEW.payload, 1, 300)), length(NEW.payload),
            NEW.headers, NEW.created_at, NEW.timer_id),
        iif(length(CAST(NEW.last_exception AS blob)) > 8192, 'too long', NEW.failure_reason));
END;

CREATE VIEW letters AS SELECT original_id AS id, concat_ws('|', queue,
    hex(substr(payload, 1, 300)), length(payload), headers, created_at, timer_id) AS body
FROM outbox_dlq;
