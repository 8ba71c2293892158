//! A row that has run alone for long is to go on beside others, under another token. The
//! process ends before anybody could say so.

use std::sync::Arc;

use outbox::{Context, Outcome, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::eventually;
use tokio::time::sleep;

use super::leases::{BESIDE_OTHERS, owned};
use super::{HOUR, SECOND, free};

on_postgres!(
    a_stop_while_a_row_cannot_be_told_to_run_beside_others_condemns_it_not,
    a_drop_while_a_row_cannot_be_told_to_run_beside_others_condemns_it_not,
);

async fn a_stop_while_a_row_cannot_be_told_to_run_beside_others_condemns_it_not(db: &Db) {
    ends(db, true).await;
}

async fn a_drop_while_a_row_cannot_be_told_to_run_beside_others_condemns_it_not(db: &Db) {
    ends(db, false).await;
}

async fn ends(db: &Db, stops: bool) {
    for _ in 0..5 {
        if ends_before_it_is_told(db, stops).await {
            return;
        }
        // This machine stood still, and it was told.
        db.exec("DELETE FROM outbox").await;
    }
    panic!("it was told each time before its row was locked");
}

/// `false` if there was nothing left to try: it was told in time.
async fn ends_before_it_is_told(db: &Db, stops: bool) -> bool {
    let suspect = db.publish("q", 1).await;
    owned(db, suspect, BESIDE_OTHERS, 3, 2 * HOUR).await;
    let state = Arc::new(());
    let kept = Arc::clone(&state);
    let endless = Subscriber::new("it", "q", move |_: Context| {
        let kept = Arc::clone(&kept);
        async move {
            std::future::pending::<()>().await;
            drop(kept);
            Outcome::Ack
        }
    });
    let endless = endless.max_deliveries(3).lease_ttl(30 * SECOND);
    let app = db.app().only([endless]).drain_timeout(SECOND);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    eventually("it runs", async || stats.subscribers()[0].dispatched == 1).await;
    // It is alone for half of its lease.
    sleep(13 * SECOND).await;
    let mut lock = db.pg().begin().await.unwrap();
    let version = "SELECT substr(acquired_token::text, 15, 1) FROM outbox FOR UPDATE";
    let version: String = sqlx::query_scalar(version).fetch_one(&mut *lock).await.unwrap();
    if version != "8" {
        lock.rollback().await.unwrap();
        drop((running, app));
        eventually("nothing is left of it", async || Arc::strong_count(&state) == 1).await;
        return false;
    }
    sleep(4 * SECOND).await;
    let unlocks = async {
        sleep(3 * SECOND).await;
        lock.rollback().await.unwrap();
    };
    let ends = async {
        if stops {
            return running.stop().await;
        }
        drop(running);
        Ok(())
    };
    let (ended, ()) = tokio::join!(ends, unlocks);
    assert_eq!(ended.is_err(), stops, "it was cut off");
    eventually("it is given back", async || db.leased().await == 0).await;
    drop(app);
    eventually("nothing is left of it", async || Arc::strong_count(&state) == 1).await;
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber.max_deliveries(3)]).start().await.unwrap();
    assert_eq!(probe.start().await.id, suspect, "it is innocent");
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
    true
}
