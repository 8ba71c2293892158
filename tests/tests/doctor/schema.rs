//! Tables that are not as they have to be.

use outbox::ops::doctor::Severity;
use outbox_tests::db::Db;

use crate::{of, one};

async fn a_missing_index_is_a_warning(db: &Db) {
    db.exec("DROP INDEX outbox_due_idx").await;
    let report = of(db).await;
    let found = one(&report, "schema", Severity::Warning);
    assert!(found.mend.contains("CREATE INDEX"), "{found:?}");
}

async fn a_missing_table_is_an_error(db: &Db) {
    db.exec("DROP TABLE outbox_dlq").await;
    let report = of(db).await;
    let found = one(&report, "schema", Severity::Error);
    assert!(found.what.contains("does not exist"), "{found:?}");
}

outbox_tests::on_both!(a_missing_index_is_a_warning, a_missing_table_is_an_error);
