//! How often the server writes its log to disk.

use outbox::testing::store::{Commits, Store};
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;

use super::books::Books;
use super::server;
use super::statements::Settle;

const ACKS: i64 = 50;

#[tokio::test]
async fn a_claim_writes_nothing_to_disk_and_an_ack_only_where_it_is_waited_for() {
    let Some((server, db)) = server().await else { return };
    let waited = flushes(Books::open(&server, &db, Commits::Default).await).await;
    let not = flushes(Books::open(&server, &db, Commits::Async).await).await;
    println!("{ACKS} claims and acks: {waited} flushes with waiting, {not} without");
    // Each ack is one; few come from the server itself, every ten seconds.
    assert!((ACKS..ACKS + 10).contains(&waited), "{waited}");
    assert!(not < 10, "{not}");
    db.close().await;
}

async fn flushes(mut books: Books<'_>) -> i64 {
    books.publish(ACKS).await;
    let before = so_far(books.db).await;
    for _ in 0..ACKS {
        let held = books.claim(1).await;
        books.settle(Settle::Ack, &held).await;
    }
    // A session that has ended has told all it counted.
    books.store.close().await;
    so_far(books.db).await - before
}

async fn so_far(db: &Db) -> i64 {
    eventually("its sessions end", async || db.connections().await == 0).await;
    db.int("SELECT wal_sync FROM pg_stat_wal").await
}
