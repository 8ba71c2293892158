-- On tables that are there by now.
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON outbox
    FOR EACH ROW EXECUTE FUNCTION audit_row();
CREATE TRIGGER audit AFTER INSERT ON outbox_dlq
    FOR EACH ROW EXECUTE FUNCTION audit_letter();
