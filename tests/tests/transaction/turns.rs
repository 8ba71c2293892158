//! SQLite lends one transaction at a time: what becomes of those who wait for theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::{Context, FromContext, HandlerError, Outgoing, State, Subscriber, Tx};
use outbox_tests::wait::{eventually, soon};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::handlers::{Then, subscriber};
use super::*;

outbox_tests::cases!(sqlite in sqlite_only:
    a_message_whose_time_is_over_while_it_waits_is_not_started,
    nor_one_whose_batch_waits,
    leases_live_while_their_handlers_wait_for_turns_without_an_end
);

async fn a_message_whose_time_is_over_while_it_waits_is_not_started(db: &Db) {
    with_domain(db).await;
    let (written, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let then = Then::Wait(Arc::clone(&written), Arc::clone(&go));
    let app = db.app().only([subscriber(db, then)]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    // Whichever comes first.
    db.send_all([7, 8].map(|n| Outgoing::new("q", &n).expires_in(10 * SECOND))).await;
    soon("the first has written", written.notified()).await;
    eventually("the other waits", async || stats.subscribers()[0].dispatched == 2).await;
    sleep(10 * SECOND).await;
    go.notify_one();
    eventually("it is a letter", async || db.letters().await == 1).await;
    eventually("the first is done", async || stats.subscribers()[0].acked == 1).await;
    running.stop().await.unwrap();
    let one = stats.subscribers().remove(0);
    assert_eq!((one.acked, one.expired, one.retried), (1, 1, 0), "{one:?}");
    assert_eq!((db.letters().await, done(db).await), (1, 1));
}

/// Lets a run go on when the test says so, and every one after it.
struct Begin;

impl FromContext for Begin {
    type Rejection = String;

    const SAME_FOR_ALL: bool = true;

    async fn from_context(ctx: &Context) -> Result<Self, String> {
        let State(begin) = State::<Arc<Notify>>::from_context(ctx).await?;
        begin.notified().await;
        begin.notify_one();
        Ok(Self)
    }
}

async fn write(rows: usize, mut tx: Tx<sqlx::Sqlite>) -> Result<(), HandlerError> {
    for _ in 0..rows {
        sqlx::query("INSERT INTO done VALUES (1)").execute(&mut *tx).await?;
    }
    Ok(())
}

#[outbox::subscriber("batch", batch = 2)]
async fn batch(all: Vec<i64>, _: Begin, tx: Tx<sqlx::Sqlite>) -> Result<(), HandlerError> {
    write(all.len(), tx).await
}

#[outbox::subscriber("batch", batch = 2)]
fn plain(all: Vec<i64>, _: Begin, tx: Tx<sqlx::Sqlite>) -> Result<(), HandlerError> {
    tokio::runtime::Handle::current().block_on(write(all.len(), tx))
}

/// Another handler has the turn, until the second of two messages of a batch has expired. Returns
/// how many messages were put off.
async fn turns(db: &Db, batch: Subscriber) -> u64 {
    let (written, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let then = Then::Wait(Arc::clone(&written), Arc::clone(&go));
    let begin = Arc::new(Notify::new());
    let app = db.app().state(Arc::clone(&begin)).only([subscriber(db, then), batch]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    let dispatched = || stats.subscribers().iter().map(|one| one.dispatched).sum::<u64>();
    let expires = Outgoing::new("batch", &3).expires_in(6 * SECOND);
    db.send_all([Outgoing::new("batch", &2), expires]).await;
    // Nothing is claimed while somebody has the turn.
    eventually("the batch runs", async || dispatched() == 2).await;
    db.publish("q", 1).await;
    soon("the first has written", written.notified()).await;
    eventually("all run", async || dispatched() == 3).await;
    begin.notify_one();
    sleep(6 * SECOND).await;
    go.notify_one();
    eventually("it is a letter", async || db.letters().await == 1).await;
    eventually("the others are done", async || done(db).await == 2).await;
    running.stop().await.unwrap();
    assert_eq!((done(db).await, db.letters().await), (2, 1));
    dispatched() - 3
}

async fn nor_one_whose_batch_waits(db: &Db) {
    with_domain(db).await;
    let by_hand = Subscriber::batches("batch", "batch", 2, async |batch: Vec<Context>| {
        Begin::from_context(&batch[0]).await.unwrap();
        write(batch.len(), Tx::from_context(&batch[0]).await?).await
    });
    let by_hand = by_hand.requires::<Tx<sqlx::Sqlite>>();
    assert_eq!(turns(db, by_hand).await, 1, "the other one begins again");
    for batch in [batch::subscriber(), plain::subscriber()] {
        db.exec("DELETE FROM done").await;
        db.exec("DELETE FROM outbox_dlq").await;
        assert_eq!(turns(db, batch).await, 0, "the other one goes on");
    }
}

/// Each is extended twice before its turn comes, by somebody who writes between two turns.
async fn leases_live_while_their_handlers_wait_for_turns_without_an_end(db: &Db) {
    with_domain(db).await;
    let case = async || {
        db.exec("DELETE FROM done").await;
        let runs = Arc::<AtomicUsize>::default();
        let seen = Arc::clone(&runs);
        let slow = Subscriber::new("slow", "q", move |ctx: Context| {
            let seen = Arc::clone(&seen);
            async move {
                let mut tx = Tx::<sqlx::Sqlite>::from_context(&ctx).await?;
                seen.fetch_add(1, Ordering::SeqCst);
                sqlx::query("INSERT INTO done VALUES (1)").execute(&mut *tx).await?;
                sleep(SECOND / 2).await;
                Ok::<_, HandlerError>(())
            }
        });
        // An extension waits for the next turn but one.
        let slow = slow.requires::<Tx<sqlx::Sqlite>>().lease_ttl(5 * SECOND).max_workers(20);
        db.send_all((0..20).map(|n| Outgoing::new("q", &n))).await;
        let app = db.app().only([slow]);
        let stats = app.stats();
        let running = app.start().await.unwrap();
        db.drained().await;
        running.stop().await.unwrap();
        let one = stats.subscribers().remove(0);
        (one.acked, one.lease_lost, runs.load(Ordering::SeqCst), done(db).await)
    };
    db.unless_stalled(SECOND / 2, (20, 0, 20, 20), case).await;
}
