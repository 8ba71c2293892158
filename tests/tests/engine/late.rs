//! A new connection that takes longer than whoever asked for it has to wait.

use std::sync::Arc;
use std::time::Duration;

use outbox::testing::store::{Claim, PgStore, Store, new_token};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::proxy::Proxy;
use outbox_tests::wait::{eventually, soon};
use sqlx::postgres::PgPoolOptions;
use tokio::time::Instant;

use super::{HOUR, SECOND};

on_postgres!(a_connection_that_comes_too_late_for_its_statement_is_kept);

/// Given up each time another one comes free, one that takes long would never be made.
async fn a_connection_that_comes_too_late_for_its_statement_is_kept(db: &Db) {
    let proxy = Proxy::before(db).await;
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    let store = PgStore::new(&pool, db.names.clone());
    store.ping().await.unwrap();
    eventually("the first one is free", async || store.connections().idle == 1).await;
    let late = 2 * SECOND;
    proxy.delay(late);
    let lock = db.lock().await;
    let claim = Claim {
        queues: Arc::from([String::from("q")]),
        limit: 1,
        lease_ttl: HOUR,
        token: new_token(),
        after: None,
        max_deliveries: None,
        expected: false,
    };
    let claiming = {
        let store = store.clone();
        tokio::spawn(async move { store.claim(&[claim]).await.unwrap() })
    };
    db.engine_waits().await;
    let asked = Instant::now();
    let asking = {
        let store = store.clone();
        tokio::spawn(async move { store.ping().await.unwrap() })
    };
    eventually("another one is asked for", async || proxy.connections() == 2).await;
    lock.release().await;
    claiming.await.unwrap();
    soon("the first one serves both", asking).await.unwrap();
    assert!(asked.elapsed() < late, "it waited for the second one");
    eventually("the second one is there", async || store.connections().idle == 2).await;
    assert!(asked.elapsed() > late - Duration::from_millis(100), "it was not late");
    assert_eq!(proxy.connections(), 2, "as many as were asked for");
    store.close().await;
}
