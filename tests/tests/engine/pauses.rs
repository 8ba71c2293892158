//! An app that could not read which queues are paused goes on without, and not for ever.

use std::sync::Arc;
use std::time::Duration;

use outbox::testing::store::{Claim, Expects, PgStore, SqliteStore, Store, new_token};
use outbox_tests::db::{Db, Pool};
use outbox_tests::on_both;

on_both!(one thread: a_pause_is_heeded_again_a_minute_after_its_table_is_back);

/// Also where it was only taken away and given back, as by a restore.
async fn a_pause_is_heeded_again_a_minute_after_its_table_is_back(db: &Db) {
    let names = db.names.clone();
    match &db.pool {
        Pool::Postgres(pool) => heeds_it_again(db, &PgStore::new(pool, names)).await,
        Pool::Sqlite(pool) => heeds_it_again(db, &SqliteStore::new(pool, names)).await,
    }
}

async fn heeds_it_again(db: &Db, store: &impl Store) {
    let take = async || {
        let claim = Claim {
            queues: Arc::from(["q".to_owned()]),
            limit: 10,
            lease_ttl: Duration::from_secs(600),
            token: new_token(),
            after: None,
            max_deliveries: None,
            expects: Expects::Plenty,
        };
        store.claim(&[claim]).await.map(|taken| taken[0].rows.len())
    };
    db.publish("q", 1).await;
    db.exec("DROP TABLE outbox_paused").await;
    take().await.unwrap_err();
    // As the engine does then.
    store.validate(false).await.unwrap();
    assert_eq!(take().await.unwrap(), 1, "without pauses");
    db.migrate().await;
    db.app().operator().unwrap().pause(&["q"], None).await.unwrap();
    db.publish("q", 2).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    assert_eq!(take().await.unwrap(), 0, "it is paused");
    db.app().operator().unwrap().resume(&["q"]).await.unwrap();
    assert_eq!(take().await.unwrap(), 1);
    store.close().await;
}
