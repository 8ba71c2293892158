//! PgBouncer between the program and the server.

use outbox::ops::doctor::{Limits, Severity};
use outbox_tests::db::Db;
use outbox_tests::pooler::Pooler;

use crate::{by, examine, limits, of};

async fn a_pooler_in_transaction_mode_is_an_error(db: &Db) {
    assert_eq!(by(&of(db).await, "pooler").len(), 0);
    let Some(pooler) = Pooler::start(db, "transaction").await else { return };
    let report = examine(pooler.app(db, 0), Limits::default()).await;
    let found = by(&report, "pooler");
    assert_eq!(found.len(), 1, "{report:#?}");
    assert_eq!(found[0].severity, Severity::Error);
    // LISTEN is answered there, and nothing ever comes.
    let found = by(&report, "listen");
    assert_eq!(found.len(), 1, "{report:#?}");
    assert_eq!(found[0].severity, Severity::Error, "{found:?}");
}

async fn a_pooler_in_session_mode_is_as_good_as_none(db: &Db) {
    let Some(pooler) = Pooler::start(db, "session").await else { return };
    let report = examine(pooler.app(db, 0), limits()).await;
    for check in ["pooler", "listen"] {
        assert_eq!(by(&report, check).len(), 0, "{report:#?}");
    }
}

outbox_tests::on_postgres!(
    a_pooler_in_transaction_mode_is_an_error,
    a_pooler_in_session_mode_is_as_good_as_none,
);
