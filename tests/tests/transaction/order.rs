//! Timers that several transactions move at once. Each locks them in the order of their names,
//! whatever the order in which they are given; so that none waits for one that waits for it.

use outbox::{
    Context, FromContext, HandlerError, Outgoing, Publisher, Subscriber, TimerConflict, Tx,
};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::eventually;
use sqlx::{Executor, Postgres, Transaction};

use super::*;

on_postgres!(
    a_batch_locks_its_timers_in_one_order,
    an_ack_locks_the_timers_that_it_sets_in_one_order,
    a_lent_transaction_locks_the_timers_of_its_batch_in_one_order,
);

fn moved(name: &str) -> Outgoing {
    let timer = Outgoing::new("later", &7).timer_id(name).delay(60 * SECOND);
    timer.on_conflict(TimerConflict::Extend)
}

/// Somebody who has the first of two timers.
async fn first_of_two(db: &Db) -> Transaction<'static, Postgres> {
    db.waits_for_locks().await;
    db.send_all(["a", "b"].map(|name| moved(name).delay(30 * SECOND))).await;
    let mut first = db.pg().begin().await.unwrap();
    first.execute("SELECT FROM outbox WHERE timer_id = 'a' FOR UPDATE").await.unwrap();
    first
}

/// It can have the second one too, as long as the others wait for the first.
async fn goes_on(db: &Db, mut first: Transaction<'static, Postgres>) {
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("somebody waits", async || db.int(waits).await > 0).await;
    let second = "SELECT FROM outbox WHERE timer_id = 'b' FOR UPDATE NOWAIT";
    first.execute(second).await.expect("nobody has the second one");
    first.commit().await.unwrap();
}

async fn a_batch_locks_its_timers_in_one_order(db: &Db) {
    let first = first_of_two(db).await;
    let batch = async {
        let mut tx = db.pg().begin().await.unwrap();
        let timers = ["b", "a"].map(moved);
        let moved = Publisher::default().publish_batch(&mut tx, timers).await.unwrap();
        tx.commit().await.unwrap();
        moved
    };
    let (moved, ()) = tokio::join!(batch, goes_on(db, first));
    let names = db.texts("SELECT timer_id FROM outbox ORDER BY id").await;
    let ids: Vec<_> = moved.iter().filter_map(|one| one.id()).collect();
    assert_eq!((names, ids.len()), (vec!["a".to_owned(), "b".to_owned()], 2));
    assert!(ids[0] > ids[1], "each is told in its place");
}

async fn is_acked(db: &Db, subscriber: Subscriber) {
    let first = first_of_two(db).await;
    db.send_all([1, 2].map(|n| Outgoing::new("q", &n))).await;
    let running = db.app().only([subscriber]).start().await.unwrap();
    goes_on(db, first).await;
    settled(db).await;
    running.stop().await.unwrap();
    let late = "SELECT count(*) FROM outbox WHERE next_attempt_at > now() + interval '40 s'";
    assert_eq!((db.int(late).await, db.letters().await), (2, 0));
}

async fn an_ack_locks_the_timers_that_it_sets_in_one_order(db: &Db) {
    let both = Subscriber::new("both", "q", |ctx: Context| async move {
        for name in ["b", "a"] {
            ctx.publisher().collect(moved(name))?;
        }
        Ok::<_, HandlerError>(())
    });
    is_acked(db, both).await;
}

async fn a_lent_transaction_locks_the_timers_of_its_batch_in_one_order(db: &Db) {
    let each = Subscriber::batches("each", "q", 2, |batch: Vec<Context>| async move {
        let _tx = Tx::<Postgres>::from_context(&batch[0]).await?;
        for (ctx, name) in batch.iter().zip(["b", "a"]) {
            ctx.publisher().collect(moved(name))?;
        }
        Ok::<_, HandlerError>(())
    });
    is_acked(db, each.requires::<Tx<Postgres>>()).await;
}
