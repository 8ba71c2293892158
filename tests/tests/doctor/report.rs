//! The report as a whole.

use outbox::App;
use outbox::ops::doctor::Severity;
use outbox_tests::db::{Db, Pool};

use crate::{by, of};

async fn good_tables_have_no_error_and_every_check_is_made(db: &Db) {
    let report = of(db).await;
    assert_eq!(report.count(Severity::Error), 0, "{report:#?}");
    assert!(report.checks.iter().all(|check| check.said.is_some()), "{report:#?}");
    let names: Vec<_> = report.checks.iter().map(|check| check.name).collect();
    let own: &[&str] = if db.is_postgres() {
        &["connections", "pooler", "listen", "notify", "snapshots", "locks", "vacuum", "path"]
    } else {
        &["integrity", "journal", "busy", "writing", "file", "wal"]
    };
    assert_eq!(names, [own, &["clock", "schema", "queues", "payloads"]].concat());
}

async fn without_handlers_it_says_what_it_cannot_tell(db: &Db) {
    let report = db.app().operator().unwrap().doctor().examine().await.unwrap();
    let found = by(&report, "queues")[0];
    assert_eq!(found.severity, Severity::Warning);
    assert!(found.what.contains("no handlers") && found.mend.contains("outbox::cli::run"));
}

async fn a_database_that_is_away_is_an_error_at_once(db: &Db) {
    let app = match &db.pool {
        Pool::Postgres(pool) => {
            let options = (*pool.connect_options()).clone().port(1);
            App::postgres(sqlx::PgPool::connect_lazy_with(options))
        }
        Pool::Sqlite(_) => {
            let url = db.url.replace("test.db", "other.db");
            App::sqlite(sqlx::SqlitePool::connect_lazy(&url).unwrap())
        }
    };
    let error = app.doctor().unwrap().examine().await.unwrap_err().to_string();
    let told = if db.is_postgres() { "connect to PostgreSQL" } else { "does not exist" };
    assert!(error.contains(told), "{error}");
}

async fn a_check_that_fails_keeps_no_other_from_being_made(db: &Db) {
    db.exec("DROP TABLE outbox").await;
    let report = of(db).await;
    let failed = by(&report, "queues")[0];
    assert!(failed.what.contains("could not be made"), "{failed:?}");
    assert_eq!(failed.severity, Severity::Error);
    let last = report.checks.last().unwrap();
    assert_eq!((last.name, report.findings[0].severity), ("payloads", Severity::Error));
}

outbox_tests::on_both!(
    good_tables_have_no_error_and_every_check_is_made,
    without_handlers_it_says_what_it_cannot_tell,
    a_database_that_is_away_is_an_error_at_once,
    a_check_that_fails_keeps_no_other_from_being_made,
);
