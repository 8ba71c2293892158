-- The truth: what every transaction did, written by itself. It commits with the change.
CREATE TABLE biz (key text PRIMARY KEY, queue text NOT NULL, act text NOT NULL,
    delay bigint NOT NULL, called bigint NOT NULL);
CREATE TABLE effect (key text NOT NULL, xid xid8 NOT NULL DEFAULT pg_current_xact_id());
CREATE TABLE cancelled (key text NOT NULL);
CREATE TABLE audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Microseconds: when it was written, and when its statement began.
    at bigint NOT NULL, stmt bigint NOT NULL,
    xid bigint NOT NULL, app text NOT NULL, op text NOT NULL,
    id bigint NOT NULL, queue text NOT NULL, key text, timer text, body text, reason text,
    old_token text, new_token text, old_leased bigint, new_leased bigint, old_due bigint,
    new_due bigint, old_deliveries bigint, new_deliveries bigint, old_attempts bigint,
    new_attempts bigint
);

CREATE FUNCTION us(at timestamptz) RETURNS bigint IMMUTABLE LANGUAGE sql
AS $$ SELECT (extract(epoch FROM at) * 1000000)::bigint $$;

CREATE FUNCTION audit_row() RETURNS trigger SECURITY DEFINER SET search_path = public
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (at, stmt, xid, app, op, id, queue, key, timer, body,
        old_token, new_token, old_leased, new_leased, old_due, new_due,
        old_deliveries, new_deliveries, old_attempts, new_attempts)
    SELECT us(clock_timestamp()), us(statement_timestamp()), pg_current_xact_id()::text::bigint,
        current_setting('application_name'), TG_OP, coalesce(NEW.id, OLD.id), its.queue,
        coalesce(its.headers->>'key', CASE WHEN its.queue = 'receipts'
            THEN convert_from(its.payload, 'UTF8')::json->>'key' END),
        its.timer,
        CASE WHEN TG_OP <> 'UPDATE' THEN md5(concat_ws('|', its.queue, md5(its.payload),
            its.headers::text, us(its.created), its.timer)) END,
        OLD.acquired_token::text, NEW.acquired_token::text, us(OLD.acquired_at),
        us(NEW.acquired_at), us(OLD.next_attempt_at), us(NEW.next_attempt_at),
        OLD.deliveries_count, NEW.deliveries_count, OLD.attempts_count, NEW.attempts_count
    FROM (SELECT coalesce(NEW.queue, OLD.queue) AS queue, coalesce(NEW.payload, OLD.payload) AS payload,
        coalesce(NEW.headers, OLD.headers) AS headers, coalesce(NEW.timer_id, OLD.timer_id) AS timer,
        coalesce(NEW.created_at, OLD.created_at) AS created) AS its;
    RETURN NULL;
END $$;

CREATE FUNCTION audit_letter() RETURNS trigger SECURITY DEFINER SET search_path = public
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (at, stmt, xid, app, op, id, queue, key, timer, body, reason)
    VALUES (us(clock_timestamp()), us(statement_timestamp()), pg_current_xact_id()::text::bigint,
        current_setting('application_name'), 'LETTER', NEW.original_id, NEW.queue,
        NEW.headers->>'key', NEW.timer_id,
        md5(concat_ws('|', NEW.queue, md5(NEW.payload), NEW.headers::text, us(NEW.created_at),
            NEW.timer_id)),
        CASE WHEN octet_length(NEW.last_exception) > 8192 THEN 'too long'
            ELSE NEW.failure_reason END);
    RETURN NULL;
END $$;

CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON outbox
    FOR EACH ROW EXECUTE FUNCTION audit_row();
CREATE TRIGGER audit AFTER INSERT ON outbox_dlq
    FOR EACH ROW EXECUTE FUNCTION audit_letter();

-- What has become of letters by the end, in the words of the audit.
CREATE VIEW letters AS SELECT original_id AS id, md5(concat_ws('|', queue, md5(payload),
    headers::text, us(created_at), timer_id)) AS body FROM outbox_dlq;

-- Handlers and producers are no superusers: they can be denied things.
GRANT ALL ON biz, effect, cancelled TO campaign;
