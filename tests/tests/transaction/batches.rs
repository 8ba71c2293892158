//! Handlers of batches: one transaction, lent once, settles all that succeeded.

use std::sync::Arc;

use outbox::retry::{Constant, NoRetry};
use outbox::{
    Batch, Context, FromContext, HandlerError, HandlerResult, Next, Outgoing, PublishError,
    Subscriber, Tx, subscriber,
};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use tokio::sync::Notify;

use super::*;

on_both!(
    a_first_message_that_does_not_decode_leaves_the_others_their_transaction,
    a_plain_fn_is_lent_the_transaction_of_its_batch,
    a_second_transaction_of_a_batch_is_refused,
    timers_of_a_batch_are_not_set_again_through_its_own_transaction,
    timers_of_a_batch_set_each_other_again,
    what_was_written_for_a_message_that_its_layer_gave_up_does_not_commit,
    what_was_written_for_a_message_that_its_layer_fails_afterwards_does_not_commit,
    what_was_written_for_a_message_of_which_its_layer_says_otherwise_does_not_commit,
    what_was_written_for_a_message_of_which_something_cannot_be_published_does_not_commit,
);

fn named(n: usize) -> Outgoing {
    Outgoing::new("q", &n).timer_id(format!("t{n}"))
}

macro_rules! handlers {
    ($name:ident, $plain:ident, $twice:ident, $again:ident, $own:ident, $slow:ident, $odd:ident, $database:ty, $insert:literal) => {
        #[subscriber("q", batch = 10, retry = NoRetry)]
        async fn $name(numbers: Vec<i64>, mut tx: Tx<$database>) -> anyhow::Result<()> {
            for n in numbers {
                sqlx::query($insert).bind(n).execute(&mut *tx).await?;
                outbox::publish(&mut tx, "receipts", &n).await?;
            }
            Ok(())
        }

        #[subscriber("q", batch = 10, retry = NoRetry)]
        fn $plain(numbers: Batch<i64>, mut tx: Tx<$database>) -> anyhow::Result<()> {
            let runtime = tokio::runtime::Handle::current();
            for item in &numbers {
                let n = item.message;
                runtime.block_on(sqlx::query($insert).bind(n).execute(&mut *tx))?;
                let publisher = item.context.publisher();
                runtime.block_on(publisher.publish(&mut tx, "receipts", &n))?;
            }
            Ok(())
        }

        async fn $twice(batch: Vec<outbox::Context>) -> Result<(), HandlerError> {
            let mut tx = Tx::<$database>::from_context(&batch[0]).await?;
            sqlx::query($insert).bind(1).execute(&mut *tx).await?;
            Tx::<$database>::from_context(&batch[1]).await.map(drop)
        }

        async fn $again(batch: Vec<outbox::Context>) -> Result<(), HandlerError> {
            let _tx = Tx::<$database>::from_context(&batch[0]).await?;
            for (at, one) in batch.iter().enumerate() {
                let next = named((at + 1) % batch.len()).delay(600 * SECOND);
                one.publisher().collect(next).map_err(|error| HandlerError::new("test", error))?;
            }
            Ok(())
        }

        async fn $own(batch: Vec<outbox::Context>) -> Result<(), HandlerError> {
            let mut tx = Tx::<$database>::from_context(&batch[0]).await?;
            for n in 0..batch.len() {
                let refused = batch[0].publisher().send(&mut tx, named(n)).await.unwrap_err();
                assert!(matches!(refused, PublishError::OwnTimer { .. }), "{refused}");
            }
            outbox::publish(&mut tx, "receipts", &0).await?;
            Ok(())
        }

        async fn $slow(
            batch: Vec<outbox::Context>,
            written: Arc<Notify>,
        ) -> Result<(), HandlerError> {
            let mut tx = Tx::<$database>::from_context(&batch[0]).await?;
            for one in &batch {
                let n: i64 = one.decode()?;
                sqlx::query($insert).bind(n).execute(&mut *tx).await?;
            }
            written.notify_one();
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok(())
        }

        async fn $odd(
            batch: Vec<outbox::Context>,
            wait: Duration,
        ) -> Vec<Result<(), &'static str>> {
            let mut tx = Tx::<$database>::from_context(&batch[0]).await.unwrap();
            let mut results = Vec::new();
            for one in &batch {
                let n: i64 = one.decode().unwrap();
                sqlx::query($insert).bind(n).execute(&mut *tx).await.unwrap();
                results.push(if n % 2 == 1 { Ok(()) } else { Err("even") });
            }
            tokio::time::sleep(wait).await;
            results
        }
    };
}

handlers!(
    on_postgres,
    plain_on_postgres,
    twice_on_postgres,
    again_on_postgres,
    own_on_postgres,
    slow_on_postgres,
    odd_on_postgres,
    sqlx::Postgres,
    "INSERT INTO done (n) VALUES ($1)"
);
handlers!(
    on_sqlite,
    plain_on_sqlite,
    twice_on_sqlite,
    again_on_sqlite,
    own_on_sqlite,
    slow_on_sqlite,
    odd_on_sqlite,
    sqlx::Sqlite,
    "INSERT INTO done (n) VALUES (?)"
);

/// Settles a message that is no number and, behind it, three that are.
async fn run(db: &Db, subscriber: Subscriber) {
    with_domain(db).await;
    let numbers = (1..=3_i64).map(|n| Outgoing::new("q", &n));
    db.send_all([Outgoing::new("q", "no number")].into_iter().chain(numbers)).await;
    let running = db.app().only([subscriber]).start().await.unwrap();
    let left = "SELECT count(*) FROM outbox WHERE queue = 'q'";
    outbox_tests::wait::eventually("all are settled", async || db.int(left).await == 0).await;
    running.stop().await.unwrap();
}

async fn the_numbers_are_done(db: &Db) {
    assert_eq!((done(db).await, receipts(db).await, db.letters().await), (3, 3, 1));
    assert_eq!(db.texts("SELECT error_kind FROM outbox_dlq").await, ["decode"]);
}

async fn a_first_message_that_does_not_decode_leaves_the_others_their_transaction(db: &Db) {
    let postgres = db.is_postgres();
    run(db, if postgres { on_postgres::subscriber() } else { on_sqlite::subscriber() }).await;
    the_numbers_are_done(db).await;
}

async fn a_plain_fn_is_lent_the_transaction_of_its_batch(db: &Db) {
    let postgres = db.is_postgres();
    let plain =
        if postgres { plain_on_postgres::subscriber() } else { plain_on_sqlite::subscriber() };
    run(db, plain).await;
    the_numbers_are_done(db).await;
    // Each comes from its own message.
    let chained = "queue = 'receipts' AND CAST(headers AS text) LIKE '%,________-____-%'";
    assert_eq!(db.int(format!("SELECT count(*) FROM outbox WHERE {chained}")).await, 3);
}

/// It would wait for the first one for ever, where there is one writer.
async fn a_second_transaction_of_a_batch_is_refused(db: &Db) {
    let twice = if db.is_postgres() {
        Subscriber::batches("twice", "q", 10, twice_on_postgres)
    } else {
        Subscriber::batches("twice", "q", 10, twice_on_sqlite)
    };
    run(db, twice.retry(NoRetry)).await;
    assert_eq!((done(db).await, db.letters().await), (0, 4));
    let why = db.texts("SELECT last_exception FROM outbox_dlq").await;
    assert!(why.iter().all(|why| why.contains("takes one `Tx`")), "{why:?}");
}

/// It would be a duplicate of one that is deleted at the end, whichever message it is of.
async fn timers_of_a_batch_are_not_set_again_through_its_own_transaction(db: &Db) {
    let own = if db.is_postgres() {
        Subscriber::batches("own", "q", 5, own_on_postgres)
    } else {
        Subscriber::batches("own", "q", 5, own_on_sqlite)
    };
    db.send_all((0..5).map(named)).await;
    let running = db.app().only([own.retry(NoRetry)]).start().await.unwrap();
    outbox_tests::wait::eventually("all are acked", async || {
        receipts(db).await == db.rows().await && receipts(db).await > 0
    })
    .await;
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
}

/// Each the one of its neighbour, whose row is acked in the same transaction.
async fn timers_of_a_batch_set_each_other_again(db: &Db) {
    let again = if db.is_postgres() {
        Subscriber::batches("again", "q", 5, again_on_postgres)
    } else {
        Subscriber::batches("again", "q", 5, again_on_sqlite)
    };
    db.send_all((0..5).map(named)).await;
    let last = db.int("SELECT max(id) FROM outbox").await;
    let later = format!("SELECT count(*) FROM outbox WHERE id > {last}");
    let running = db.app().only([again.retry(NoRetry)]).start().await.unwrap();
    outbox_tests::wait::eventually("all are set again", async || db.int(later.clone()).await == 5)
        .await;
    running.stop().await.unwrap();
    assert_eq!((db.rows().await, db.letters().await), (5, 0));
}

/// Takes so long, and acks one of two messages.
pub fn of_odd_numbers(db: &Db, wait: Duration) -> Subscriber {
    if db.is_postgres() {
        Subscriber::batches("odd", "q", 2, move |batch| odd_on_postgres(batch, wait))
    } else {
        Subscriber::batches("odd", "q", 2, move |batch| odd_on_sqlite(batch, wait))
    }
}

/// Runs three messages together inside the layer, until all are done. The layer has one of them
/// fail, so that they run again. It hears when all three have been written.
async fn run_slowly<F: Future<Output = HandlerResult> + Send + 'static>(
    db: &Db,
    layer: impl Fn(Context, Next, Arc<Notify>) -> F + Send + Sync + 'static,
) {
    with_domain(db).await;
    let written = Arc::<Notify>::default();
    let says = Arc::clone(&written);
    let slow = if db.is_postgres() {
        Subscriber::batches("slow", "q", 3, move |batch| slow_on_postgres(batch, says.clone()))
    } else {
        Subscriber::batches("slow", "q", 3, move |batch| slow_on_sqlite(batch, says.clone()))
    };
    let layer = move |ctx, next| layer(ctx, next, Arc::clone(&written));
    let slow = slow.batch_wait(SECOND).retry(Constant::new(Duration::from_millis(10)));
    db.send_all((1..=3_i64).map(|n| Outgoing::new("q", &n))).await;
    let app = db.app().only([slow]).layer(layer);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    assert!(stats.subscribers()[0].retried > 0, "none has failed");
    assert_eq!((done(db).await, db.letters().await), (3, 0));
}

/// That of number 1, at its first try.
fn is_failed(ctx: &Context) -> bool {
    ctx.attempts() == 0 && ctx.decode().is_ok_and(|n: i64| n == 1)
}

/// It runs again, and would be done twice.
async fn what_was_written_for_a_message_that_its_layer_gave_up_does_not_commit(db: &Db) {
    run_slowly(db, |ctx, next, written| async move {
        if !is_failed(&ctx) {
            return next.run(ctx).await;
        }
        tokio::select! {
            biased;
            () = written.notified() => Err(HandlerError::new("Impatient", "it takes too long")),
            result = next.run(ctx) => result,
        }
    })
    .await;
}

async fn what_was_written_for_a_message_that_its_layer_fails_afterwards_does_not_commit(db: &Db) {
    run_slowly(db, |ctx, next, _| async move {
        let fails = is_failed(&ctx);
        let word = next.run(ctx).await?;
        if fails { Err(HandlerError::new("Late", "it is not good enough")) } else { Ok(word) }
    })
    .await;
}

async fn what_was_written_for_a_message_of_which_its_layer_says_otherwise_does_not_commit(db: &Db) {
    run_slowly(db, |ctx, next, _| async move {
        let result = next.run(ctx.clone()).await;
        if is_failed(&ctx) {
            assert!(ctx.nack());
        }
        result
    })
    .await;
}

/// It fails, though its handler has succeeded.
async fn what_was_written_for_a_message_of_which_something_cannot_be_published_does_not_commit(
    db: &Db,
) {
    run_slowly(db, |ctx, next, _| async move {
        if is_failed(&ctx) {
            ctx.publisher().collect(Outgoing::new("receipts", &1).timer_id("")).unwrap();
        }
        next.run(ctx).await
    })
    .await;
}
