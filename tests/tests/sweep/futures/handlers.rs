//! What layers and handlers drop: the handler, and the transaction that it asks for.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use outbox::retry::Constant;
use outbox::{
    App, Context, FromContext, HandlerError, HandlerResult, Next, State, Subscriber, Tx, subscriber,
};
use outbox_tests::db::{Db, Pool};
use outbox_tests::on_both;
use outbox_tests::wait::{eventually, soon};
use sqlx::Executor;
use tokio::sync::{Semaphore, mpsc};

use super::super::LEASE;
use super::ground::{Before, Ground};
use super::swept_on;

on_both!(
    one thread: a_transaction_that_a_handler_asks_for_may_be_dropped_at_any_point,
    a_handler_with_a_transaction_may_be_dropped_by_its_layer_at_any_point,
    a_plain_fn_may_be_dropped_by_its_layer_at_any_point,
);

/// Of the functions that are called here.
pub const NAMES: [&str; 3] =
    ["extract/mod.rs from_context", "subscriber/layer.rs run", "private/mod.rs blocking"];

/// What they wait for goes on elsewhere: polled when it wakes them, they would be dropped at
/// two or three points. So they are polled at every turn of the runtime.
async fn turned<F: Future>(turns: usize, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), turns);
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            cx.waker().wake_by_ref();
        }
        polled.map(Some)
    })
    .await
}

/// Drops of each, at least: a thread that is kept waiting finds at its next turn that all is
/// over.
pub const ENOUGH: usize = 15;

/// Every one of the first turns, later every fifth or so; from the first again after the last.
fn after(turns: usize, ended: bool) -> usize {
    if ended { 0 } else { turns + 1 + turns / 4 }
}

/// What the test and a handler tell each other.
#[derive(Clone)]
struct Stage {
    /// After so many its first delivery drops what it is about.
    turns: Arc<AtomicUsize>,
    /// Whether it came to its end before.
    told: mpsc::UnboundedSender<bool>,
    go: Arc<Semaphore>,
    /// What it answers then.
    fails: Arc<AtomicBool>,
}

impl Stage {
    fn set() -> (Self, mpsc::UnboundedReceiver<bool>) {
        let (told, heard) = mpsc::unbounded_channel();
        let (turns, go) = (Arc::default(), Arc::new(Semaphore::new(0)));
        (Self { turns, told, go, fails: Arc::default() }, heard)
    }

    fn turns(&self) -> usize {
        self.turns.load(Ordering::SeqCst)
    }
}

fn dropped() -> HandlerError {
    HandlerError::new("dropped", "as told")
}

macro_rules! handlers {
    ($asks:ident, $writes:ident, $database:ty, $insert:literal) => {
        /// Drops the transaction that it asks for, and later does with one what others do.
        async fn $asks(context: Context, stage: Stage) -> Result<(), HandlerError> {
            if context.attempts() > 0 {
                return $writes(context).await;
            }
            let asked = Tx::<$database>::from_context(&context);
            let ended = turned(stage.turns(), asked).await;
            let _ = stage.told.send(ended.is_some());
            drop(ended.transpose()?);
            stage.go.acquire().await.expect("it is open").forget();
            if stage.fails.load(Ordering::SeqCst) { Err(dropped()) } else { Ok(()) }
        }

        async fn $writes(context: Context) -> Result<(), HandlerError> {
            let mut tx = Tx::<$database>::from_context(&context).await?;
            sqlx::query($insert).bind(context.id()).execute(&mut *tx).await?;
            outbox::publish(&mut tx, "receipts", &context.id()).await?;
            Ok(())
        }
    };
}

handlers!(asks_postgres, writes_postgres, sqlx::Postgres, "INSERT INTO mine VALUES ($1)");
handlers!(asks_sqlite, writes_sqlite, sqlx::Sqlite, "INSERT INTO mine VALUES (?)");

/// What has to be there once for each delivery that took a transaction.
async fn written(db: &Db) -> [i64; 2] {
    let receipts = "SELECT count(*) FROM outbox WHERE queue = 'receipts'";
    [db.int("SELECT count(*) FROM mine WHERE n > 0").await, db.int(receipts).await]
}

async fn is_settled(db: &Db) {
    let left = "SELECT count(*) FROM outbox WHERE queue = 'q'";
    eventually("the next delivery ends well", async || db.int(left).await == 0).await;
}

/// The pool, of one connection, is as good as new: what is written through it is there for
/// others at once.
async fn gives_out_its_connection(ground: &Ground<'_>) {
    ground.rests().await.unwrap();
    let of_nobody = "SELECT count(*) FROM mine WHERE n = -1";
    let (before, insert) = (ground.db.int(of_nobody).await, "INSERT INTO mine VALUES (-1)");
    let run = async {
        match &ground.pool {
            Pool::Postgres(pool) => pool.execute(insert).await.map(drop),
            Pool::Sqlite(pool) => pool.execute(insert).await.map(drop),
        }
    };
    soon("it has a connection", run).await.unwrap();
    assert_eq!(ground.db.int(of_nobody).await, before + 1);
}

fn often(subscriber: Subscriber) -> Subscriber {
    let soon = Duration::from_millis(10);
    let subscriber = subscriber.lease_ttl(LEASE).retry(Constant::new(soon / 10));
    subscriber.min_poll(soon).max_poll(10 * soon)
}

async fn a_transaction_that_a_handler_asks_for_may_be_dropped_at_any_point(db: &Db) {
    let ground = Ground::of(db).await;
    ground.prepare(Before::Nothing).await;
    db.exec("CREATE TABLE mine (n bigint)").await;
    let (stage, mut heard) = Stage::set();
    let asking = stage.clone();
    let asker = if db.is_postgres() {
        Subscriber::new("asks", "q", move |context| asks_postgres(context, asking.clone()))
    } else {
        Subscriber::new("asks", "q", move |context| asks_sqlite(context, asking.clone()))
    };
    let running = ground.app().only([often(asker)]).start().await.unwrap();
    let (mut turns, mut dropped, mut taken) = (0, 0, 0);
    for times in 0.. {
        let fails = times % 2 == 0;
        stage.turns.store(turns, Ordering::SeqCst);
        stage.fails.store(fails, Ordering::SeqCst);
        db.publish("q", 1).await;
        let ended = soon("it has asked", heard.recv()).await.unwrap();
        if !ended {
            gives_out_its_connection(&ground).await;
            assert_eq!(db.leased().await, 1, "its lease is its own, after {turns} turns");
        }
        stage.go.add_permits(1);
        is_settled(db).await;
        // What answers that all is well is acked without a transaction.
        taken += i64::from(fails);
        assert_eq!(written(db).await, [taken; 2], "after {turns} turns");
        gives_out_its_connection(&ground).await;
        dropped += usize::from(!ended);
        if ended && dropped >= ENOUGH {
            break;
        }
        turns = after(turns, ended);
        assert!(times < 200, "it does not end");
    }
    swept_on(db, "transactions asked for", dropped);
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
}

/// Runs messages through a layer that drops the first delivery of each after ever more
/// turns, until one is not dropped. Returns how many there were, and how many were dropped.
async fn dropped_by_its_layer(ground: &Ground<'_>, app: App, one: Subscriber) -> (usize, usize) {
    ground.prepare(Before::Nothing).await;
    let (stage, mut heard) = Stage::set();
    let dropping = stage.clone();
    let layer = move |context: Context, next: Next| {
        let stage = dropping.clone();
        async move {
            if context.attempts() > 0 {
                return next.run(context).await;
            }
            let ended: Option<HandlerResult> = turned(stage.turns(), next.run(context)).await;
            let _ = stage.told.send(ended.is_some());
            ended.unwrap_or_else(|| Err(dropped()))
        }
    };
    let running = app.layer(layer).only([often(one)]).start().await.unwrap();
    let (mut turns, mut times, mut dropped) = (0, 0, 0);
    loop {
        stage.turns.store(turns, Ordering::SeqCst);
        ground.db.publish("q", 1).await;
        let ended = soon("it is dropped", heard.recv()).await.unwrap();
        is_settled(ground.db).await;
        gives_out_its_connection(ground).await;
        times += 1;
        dropped += usize::from(!ended);
        if ended && dropped >= ENOUGH {
            break;
        }
        turns = after(turns, ended);
        assert!(times < 200, "it does not end");
    }
    soon("it stops", running.stop()).await.unwrap();
    assert_eq!(ground.db.letters().await, 0);
    (times, dropped)
}

async fn a_handler_with_a_transaction_may_be_dropped_by_its_layer_at_any_point(db: &Db) {
    db.exec("CREATE TABLE mine (n bigint)").await;
    let writer = if db.is_postgres() {
        Subscriber::new("writes", "q", writes_postgres)
    } else {
        Subscriber::new("writes", "q", writes_sqlite)
    };
    let ground = Ground::of(db).await;
    let (times, dropped) = dropped_by_its_layer(&ground, ground.app(), writer).await;
    // Whatever was dropped is undone, and each is written in the end.
    assert_eq!(written(db).await, [i64::try_from(times).unwrap(); 2]);
    swept_on(db, "handlers with a transaction", dropped);
}

/// Threads of a plain fn, of which there is one at a time.
#[derive(Default)]
struct Threads {
    running: AtomicUsize,
    most: AtomicUsize,
}

/// Dropped, it runs on, and keeps its place.
#[subscriber("q", max_workers = 1)]
fn plain(_: i64, State(threads): State<Arc<Threads>>) {
    let running = threads.running.fetch_add(1, Ordering::SeqCst) + 1;
    threads.most.fetch_max(running, Ordering::SeqCst);
    // The next delivery comes before that.
    std::thread::sleep(Duration::from_millis(30));
    threads.running.fetch_sub(1, Ordering::SeqCst);
}

async fn a_plain_fn_may_be_dropped_by_its_layer_at_any_point(db: &Db) {
    db.exec("CREATE TABLE mine (n bigint)").await;
    let (ground, threads) = (Ground::of(db).await, Arc::<Threads>::default());
    let app = ground.app().state(Arc::clone(&threads));
    let (_, dropped) = dropped_by_its_layer(&ground, app, plain::subscriber()).await;
    swept_on(db, "plain fns", dropped);
    eventually("its threads end", async || threads.running.load(Ordering::SeqCst) == 0).await;
    assert_eq!(threads.most.load(Ordering::SeqCst), 1);
}
