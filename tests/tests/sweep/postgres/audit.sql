-- What happened, written by the server itself in the transaction that did it. {schema} is
-- the case's.
CREATE SCHEMA {schema};
SET search_path = {schema};
-- What the caller wrote beside a message.
CREATE TABLE biz (n bigint PRIMARY KEY);
-- What a handler wrote in the transaction that was lent to it.
CREATE TABLE done (n bigint NOT NULL);
CREATE TABLE audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    op text NOT NULL, queue text NOT NULL, id bigint NOT NULL, n bigint NOT NULL,
    token_before uuid, token_after uuid,
    held_since timestamptz, claimed_at timestamptz,
    claims bigint
);
CREATE FUNCTION audit_row() RETURNS trigger LANGUAGE plpgsql SET search_path = {schema} AS $$
BEGIN
    INSERT INTO audit
        (op, queue, id, n, token_before, token_after, held_since, claimed_at, claims)
    SELECT CASE
            WHEN TG_OP = 'INSERT' THEN 'publish'
            WHEN TG_OP = 'DELETE' THEN 'delete'
            WHEN NEW.deliveries_count > OLD.deliveries_count THEN 'claim'
            WHEN NEW.acquired_token IS NULL THEN 'give back'
            ELSE 'extend'
        END,
        coalesce(NEW.queue, OLD.queue), coalesce(NEW.id, OLD.id),
        convert_from(coalesce(NEW.payload, OLD.payload), 'UTF8')::bigint,
        OLD.acquired_token, NEW.acquired_token, OLD.acquired_at, NEW.acquired_at,
        coalesce(NEW.deliveries_count, OLD.deliveries_count);
    RETURN NULL;
END $$;
CREATE FUNCTION audit_letter() RETURNS trigger LANGUAGE plpgsql SET search_path = {schema} AS $$
BEGIN
    INSERT INTO audit (op, queue, id, n)
    VALUES ('letter', NEW.queue, NEW.original_id, convert_from(NEW.payload, 'UTF8')::bigint);
    RETURN NULL;
END $$;
