//! Tests of what becomes of connections. Beside them, tests of what SQLite makes of the statements.

mod plans;

use std::time::Duration;

use super::*;
use crate::store::{Claim, Expects, Lease, Store as _, new_token};

/// For an error, the pool would log a warning.
#[tokio::test]
async fn a_connection_whose_transaction_sqlite_has_ended_is_given_up_without_an_error() {
    let table = "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)";
    let twice = ["INSERT OR FAIL INTO t VALUES (1)", "INSERT OR ROLLBACK INTO t VALUES (1)"];
    for (insert, goes_on) in twice.into_iter().zip([true, false]) {
        let users = SqlitePoolOptions::new().connect_lazy("sqlite::memory:").unwrap();
        let mut connection = users.acquire().await.unwrap();
        connection.execute(table).await.unwrap();
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
        tx.execute(insert).await.unwrap_err();
        // As a connection is left when a call is dropped.
        std::mem::forget(tx);
        assert!(connection.is_in_transaction(), "{insert}");
        assert_eq!(is_out_of_transactions(&mut connection).await, goes_on, "{insert}");
    }
}

#[tokio::test]
async fn what_waited_in_vain_for_the_writer_s_connection_was_not_sent() {
    let users = SqlitePoolOptions::new().connect_lazy("sqlite::memory:").unwrap();
    let store = SqliteStore::new(&users, TableNames::default());
    let _taken = store.0.writer.acquire().await.unwrap();
    // Until the pool gives up.
    tokio::time::pause();
    let claim = Claim {
        queues: Arc::from([String::from("q")]),
        limit: 1,
        lease_ttl: Duration::from_secs(60),
        token: new_token(),
        after: None,
        max_deliveries: None,
        expects: Expects::Plenty,
    };
    let lease = Lease { id: 1, token: claim.token };
    let acked = store.ack(&[lease]).await.map(drop);
    let abandoned = store.abandon(&claim).await.map(drop);
    for failed in [acked.unwrap_err(), abandoned.unwrap_err()] {
        assert!(failed.transient && failed.unsent && !failed.perhaps_done, "{failed}");
    }
}
