//! Settings of a server, on one of the test's own.

use std::time::Duration;

use outbox::ops::doctor::Severity;
use outbox_tests::backend::require;
use outbox_tests::db::Db;
use outbox_tests::server::Server;

use outbox_tests::wait::eventually;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::{by, examine, limits, of, one};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_autovacuum_and_with_a_prepared_transaction_is_told() {
    if !require("postgres") {
        return;
    }
    let settings = [("autovacuum", "off"), ("max_prepared_transactions", "5"), ("fsync", "off")];
    let server = Server::start(&settings).unwrap();
    let db = Db::of(&server).await;
    let report = of(&db).await;
    let found = one(&report, "vacuum", Severity::Warning);
    assert!(found.what.contains("`autovacuum` of the server is off"), "{found:?}");

    db.exec("BEGIN; CREATE TABLE other (); PREPARE TRANSACTION 'left''over'").await;
    assert_eq!(by(&of(&db).await, "snapshots").len(), 0);
    let mut limits = limits();
    limits.snapshot_age = Duration::ZERO;
    let report = examine(db.app(), limits).await;
    let found = one(&report, "snapshots", Severity::Warning);
    assert!(found.what.contains("prepared transaction left'over"), "{found:?}");
    assert!(found.mend.contains("ROLLBACK PREPARED 'left''over'"), "{found:?}");
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_of_a_standby_that_is_gone_is_told() {
    if !require("postgres") {
        return;
    }
    let server = Server::start(&[("fsync", "off")]).unwrap();
    let db = Db::of(&server).await;
    let standby = server.standby("gone").unwrap();
    let held = "SELECT count(*) FROM pg_replication_slots WHERE xmin IS NOT NULL";
    eventually("the standby holds rows back", async || db.int(held).await == 1).await;
    assert_eq!(by(&of(&db).await, "snapshots").len(), 0);
    drop(standby);
    let active = "SELECT count(*) FROM pg_replication_slots WHERE active";
    eventually("the standby is gone", async || db.int(active).await == 0).await;
    let report = of(&db).await;
    let found = one(&report, "snapshots", Severity::Warning);
    assert!(found.what.contains("the replication slot gone"), "{found:?}");
    assert!(found.mend.contains("pg_drop_replication_slot('gone')"), "{found:?}");
    db.close().await;
}

/// The standby is told when a million transactions are held back, which are quick without flushes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_without_a_slot_and_a_server_that_counts_nothing_are_told() {
    if !require("postgres") {
        return;
    }
    let settings = [("fsync", "off"), ("synchronous_commit", "off"), ("track_counts", "off")];
    let server = Server::start(&settings).unwrap();
    let db = Db::of(&server).await;
    let report = of(&db).await;
    let found = one(&report, "vacuum", Severity::Warning);
    assert!(found.what.contains("`track_counts` of the server is off"), "{found:?}");

    let standby = server.standby_without_a_slot("slow").unwrap();
    let mut reader = PgConnection::connect(&standby.url).await.unwrap();
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    let held = "SELECT count(*) FROM pg_stat_replication WHERE backend_xmin IS NOT NULL";
    eventually("the standby holds rows back", async || db.int(held).await == 1).await;
    assert_eq!(by(&of(&db).await, "snapshots").len(), 0);
    db.exec(
        "DO $$ BEGIN FOR n IN 1..1000000 LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$",
    )
    .await;
    let report = of(&db).await;
    let found = one(&report, "snapshots", Severity::Warning);
    assert!(found.what.contains("the standby walreceiver at 127.0.0.1"), "{found:?}");
    assert!(found.mend.contains("end the long query on that standby"), "{found:?}");
    db.close().await;
}
