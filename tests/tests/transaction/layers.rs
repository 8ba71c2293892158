//! What a handler wrote of which it acks nothing is undone, whatever its layers answer.

use std::future::Future;
use std::sync::Arc;

use outbox::retry::NoRetry;
use outbox::{
    Context, FromContext, HandlerError, HandlerResult, Next, Outcome, Outgoing, Subscriber, Tx,
};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use tokio::sync::Notify;

use super::handlers::{Then, subscriber};
use super::*;

on_both!(
    what_was_written_before_an_error_that_a_layer_acks_does_not_commit,
    what_was_written_before_a_layer_acked_it_without_waiting_does_not_commit,
    what_was_written_for_a_batch_that_failed_does_not_commit_with_what_a_layer_has_acked,
    what_was_written_for_a_batch_that_panicked_does_not_commit_with_what_a_layer_has_acked,
    what_was_written_for_a_batch_commits_with_what_a_layer_has_acked,
    what_was_written_for_a_message_whose_layer_comes_to_no_end_does_not_commit,
);

/// All that is published is settled, without a letter.
async fn run<F: Future<Output = HandlerResult> + Send + 'static>(
    db: &Db,
    subscriber: Subscriber,
    layer: impl Fn(Context, Next) -> F + Send + Sync + 'static,
) {
    with_domain(db).await;
    db.send_all([1, 2].map(|n| Outgoing::new("q", &n))).await;
    let running = db.app().only([subscriber.retry(NoRetry)]).layer(layer).start().await.unwrap();
    let left = "SELECT count(*) FROM outbox WHERE queue = 'q'";
    outbox_tests::wait::eventually("all are settled", async || db.int(left).await == 0).await;
    running.stop().await.unwrap();
}

/// "Paid already" is fine.
async fn what_was_written_before_an_error_that_a_layer_acks_does_not_commit(db: &Db) {
    run(db, subscriber(db, Then::Fail), |ctx, next| async move {
        next.run(ctx).await.or(Ok(Outcome::Ack))
    })
    .await;
    assert_eq!((done(db).await, receipts(db).await, db.letters().await), (0, 0, 0));
}

async fn what_was_written_before_a_layer_acked_it_without_waiting_does_not_commit(db: &Db) {
    let (written, never) = (Arc::<Notify>::default(), Arc::default());
    let waits = subscriber(db, Then::Wait(Arc::clone(&written), never));
    // One at a time, so that each layer hears of its own.
    run(db, waits.max_workers(1), move |ctx, next| {
        let written = Arc::clone(&written);
        async move {
            tokio::select! {
                result = next.run(ctx) => result,
                () = written.notified() => Ok(Outcome::Ack),
            }
        }
    })
    .await;
    assert_eq!((done(db).await, receipts(db).await, db.letters().await), (0, 0, 0));
}

macro_rules! handler {
    ($name:ident, $database:ty, $insert:literal) => {
        async fn $name(batch: Vec<Context>, then: Then) -> Result<(), HandlerError> {
            let mut tx = Tx::<$database>::from_context(&batch[0]).await?;
            for one in &batch {
                let n: i64 = one.decode()?;
                sqlx::query($insert).bind(n).execute(&mut *tx).await?;
            }
            match then {
                Then::Panic => panic!("as told"),
                Then::Fail => Err(HandlerError::new("told", "as told")),
                _ => Ok(()),
            }
        }
    };
}

handler!(on_postgres, sqlx::Postgres, "INSERT INTO done (n) VALUES ($1)");
handler!(on_sqlite, sqlx::Sqlite, "INSERT INTO done (n) VALUES (?)");

/// Takes both messages at once.
fn both(db: &Db, then: Then) -> Subscriber {
    let both = if db.is_postgres() {
        Subscriber::batches("all", "q", 2, move |batch| on_postgres(batch, then.clone()))
    } else {
        Subscriber::batches("all", "q", 2, move |batch| on_sqlite(batch, then.clone()))
    };
    both.batch_wait(SECOND)
}

/// The layer acks the first without the handler.
async fn together(db: &Db, then: Then) {
    run(db, both(db, then), |ctx, next| async move {
        if ctx.decode().is_ok_and(|n: i64| n == 1) {
            return Ok(Outcome::Ack);
        }
        next.run(ctx).await
    })
    .await;
}

async fn what_was_written_for_a_batch_that_failed_does_not_commit_with_what_a_layer_has_acked(
    db: &Db,
) {
    together(db, Then::Fail).await;
    assert_eq!((done(db).await, db.letters().await), (0, 1));
}

async fn what_was_written_for_a_batch_that_panicked_does_not_commit_with_what_a_layer_has_acked(
    db: &Db,
) {
    together(db, Then::Panic).await;
    assert_eq!((done(db).await, db.letters().await), (0, 1));
}

/// The timeout of the subscriber is over while its layer still works; the other one is acked.
async fn what_was_written_for_a_message_whose_layer_comes_to_no_end_does_not_commit(db: &Db) {
    let subscriber = both(db, Then::Return).timeout(5 * SECOND);
    run(db, subscriber, |ctx, next| async move {
        let slow = ctx.decode().is_ok_and(|n: i64| n == 2);
        let result = next.run(ctx).await;
        if slow {
            tokio::time::sleep(60 * SECOND).await;
        }
        result
    })
    .await;
    assert_eq!((done(db).await, db.letters().await), (1, 1));
    assert_eq!(db.int("SELECT n FROM done").await, 1);
}

async fn what_was_written_for_a_batch_commits_with_what_a_layer_has_acked(db: &Db) {
    together(db, Then::Return).await;
    assert_eq!((done(db).await, db.letters().await), (1, 0));
}
