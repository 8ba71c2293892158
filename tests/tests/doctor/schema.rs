//! Tables that are not as they have to be.

use outbox::ops::doctor::Severity;
use outbox::schema::validate_schema;
use outbox::{Context, Error, Subscriber};
use outbox_tests::backend::unique;
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

/// It could not keep every error text: the dead letter would fail, and its row run for ever.
async fn a_database_that_is_not_utf8_is_refused_by_start_check_and_doctor(db: &Db) {
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let name = unique("outbox_encoded");
        db.exec(format!(
            "CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' \
             TEMPLATE template0"
        ))
        .await;
        let url = format!("{}/{name}", db.url.rsplit_once('/').unwrap().0);
        let encoded = Db::at(&url).await;
        let Err(Error::Schema(told)) = validate_schema(encoded.pg(), &encoded.names, true).await
        else {
            panic!("{encoding} is accepted")
        };
        assert_eq!(told.differences.len(), 1, "{told:#?}");
        assert!(told.differences[0].fatal && told.differences[0].what.contains(encoding));
        let reader = Subscriber::new("it", "q", async |_: Context| {}).decodes::<i64>();
        let Err(Error::Launch(reasons)) = encoded.app().only([reader]).start().await else {
            panic!("it started")
        };
        assert!(reasons[0].contains(encoding) && reasons[0].contains("UTF8"), "{reasons:?}");
        let report = of(&encoded).await;
        assert!(one(&report, "schema", Severity::Error).what.contains(encoding));
        encoded.close().await;
    }
}

outbox_tests::on_postgres!(a_database_that_is_not_utf8_is_refused_by_start_check_and_doctor);
outbox_tests::on_both!(a_missing_index_is_a_warning, a_missing_table_is_an_error);
