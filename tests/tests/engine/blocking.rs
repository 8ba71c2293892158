//! Handlers that block every thread of the runtime: nothing of the app runs
//! meanwhile but the thread that extends leases.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use outbox::{Context, State, Subscriber, subscriber};
use outbox_tests::db::Db;
use outbox_tests::probe::free;
use outbox_tests::wait::{eventually, eventually_within};
use outbox_tests::{capture, on_both};

use sqlx::{ConnectOptions as _, Executor as _};

use tokio::time::Instant;

use super::MINUTE;

on_both!(
    a_lease_outlives_handlers_that_block_the_whole_runtime,
    a_lease_of_which_little_is_left_outlives_them_too,
    a_process_whose_threads_are_all_held_leaves_the_rows_to_others,
    each_row_of_a_batch_that_finds_no_thread_is_counted,
);

async fn a_lease_outlives_handlers_that_block_the_whole_runtime(db: &Db) {
    capture::start();
    let (runs, ends) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, ended) = (Arc::clone(&runs), Arc::clone(&ends));
    const TTL: Duration = Duration::from_secs(12);
    // Blocks as many threads as the runtime has, for longer than a lease.
    let name: &str = outbox_tests::backend::unique("blocking").leak();
    let blocking = Subscriber::new(name, "q", move |ctx: Context| {
        let (counted, ended) = (Arc::clone(&counted), Arc::clone(&ended));
        async move {
            counted.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(TTL * 3 / 2);
            ended.fetch_add(1, Ordering::SeqCst);
            assert!(!ctx.cancelled().is_cancelled(), "the lease holds");
        }
    });
    let watched = db.is_postgres().then(|| opened_between(db, 2, &runs, &ends));
    let app = db.app().only([blocking.lease_ttl(TTL).max_workers(2)]);
    let running = app.start().await.unwrap();
    db.send_all((0..2_i64).map(|n| outbox::Outgoing::new("q", &n))).await;
    eventually_within(MINUTE, "all are settled", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2, "each was delivered once");
    assert_eq!(db.letters().await, 0);
    if let Some(watched) = watched {
        let told = "one connection extends them, although statements of it were cancelled";
        assert_eq!(watched.join().unwrap(), 1, "{told}");
    }
    let warned = capture::count(|line| {
        line.says("message", "handlers block the runtime")
            && line.says("running", &format!("\"{name}\""))
    });
    assert!(warned > 0);
}

/// The most connections at once with which the engine extends leases after so many runs had begun
/// and before the first has ended. The runtime of the test can ask for nothing meanwhile. The
/// first statement on the first of them is cancelled, and so is the smaller one that follows.
fn opened_between(
    db: &Db,
    all: usize,
    runs: &Arc<AtomicUsize>,
    ends: &Arc<AtomicUsize>,
) -> JoinHandle<i64> {
    let options = (*db.pg().connect_options()).clone();
    let (runs, ends) = (Arc::clone(runs), Arc::clone(ends));
    let asks = async move || {
        let mut asks = options.connect().await.unwrap();
        eventually_within(MINUTE, "they run", async || runs.load(Ordering::SeqCst) == all).await;
        let mut lock = options.connect().await.unwrap();
        lock.execute("BEGIN; LOCK TABLE outbox IN SHARE MODE").await.unwrap();
        let cancel = "SELECT backend_start::text, query_start::text, pg_cancel_backend(pid)
            FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event_type = 'Lock' AND query LIKE '-- Starts leases anew%'";
        let mut cancelled = BTreeMap::new();
        eventually_within(MINUTE, "an extension of both waits, and one of the first", async || {
            let waiting = sqlx::query_as(cancel).fetch_optional(&mut asks).await.unwrap();
            let waiting: Option<(String, String, bool)> = waiting;
            cancelled.extend(waiting.map(|(backend, statement, _)| (statement, backend)));
            cancelled.len() == 2
        })
        .await;
        lock.execute("ROLLBACK").await.unwrap();
        let (_, first) = cancelled.pop_first().unwrap();
        let opened = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND application_name = 'engine' AND backend_start >= $1::timestamptz";
        let mut most = 0;
        loop {
            let opened = sqlx::query_scalar(opened).bind(&first).fetch_one(&mut asks).await;
            if ends.load(Ordering::SeqCst) > 0 {
                return most;
            }
            most = most.max(opened.unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || runtime.block_on(asks()))
}

/// The lease task has just run when they block, and has extended none of these: more than half of
/// each lease went by before its row was started. Rows are given back when a third is left.
async fn a_lease_of_which_little_is_left_outlives_them_too(db: &Db) {
    const TTL: Duration = Duration::from_secs(30);
    let runs = Arc::new(AtomicUsize::new(0));
    let left = Arc::new(Mutex::new(Vec::new()));
    let (counted, lefts) = (Arc::clone(&runs), Arc::clone(&left));
    let blocking = Subscriber::new("late", "q", move |ctx: Context| {
        let (counted, lefts) = (Arc::clone(&counted), Arc::clone(&lefts));
        let late = ctx.lease_deadline() - TTL * 48 / 100;
        async move {
            if ctx.decode::<i64>().unwrap() < 2 {
                tokio::time::sleep_until(late).await;
                return;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            lefts.lock().unwrap().push(ctx.lease_deadline() - Instant::now());
            // For longer than is left of the lease.
            std::thread::sleep(TTL / 2);
            assert!(!ctx.cancelled().is_cancelled(), "the lease holds");
        }
    });
    let app = db.app().only([blocking.lease_ttl(TTL).max_workers(2)]);
    db.send_all((0..4_i64).map(|n| outbox::Outgoing::new("q", &n))).await;
    let running = app.start().await.unwrap();
    eventually_within(MINUTE, "all are settled", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2, "each of the late ones was delivered once");
    assert_eq!(db.letters().await, 0);
    let left = left.lock().unwrap();
    assert!(left.iter().all(|left| *left < TTL / 2), "they were claimed anew: {left:?}");
}

/// The first runs on after its timeout, for as long as the test likes.
#[subscriber(
    "q",
    max_workers = 1,
    timeout = "20ms",
    lease_ttl = "6s",
    min_poll = "50ms",
    max_poll = "100ms",
    retry = NoRetry
)]
fn held(n: i64, State(gate): State<Arc<Mutex<()>>>) {
    if n == 0 {
        drop(gate.lock());
    }
}

/// The one that was held has timed out; so may any other, on a machine that is busy, which comes to
/// no other harm.
async fn only_the_held_one_has_failed(db: &Db, held: i64) {
    let letters = format!("SELECT count(*) FROM outbox_dlq WHERE original_id = {held}");
    assert_eq!((db.int(letters).await, db.rows().await), (1, 0));
    let kinds = db.texts("SELECT DISTINCT error_kind FROM outbox_dlq").await;
    assert_eq!(kinds, ["timeout"]);
}

/// A gate that is shut until what is returned beside it is dropped, and who holds it.
fn shut() -> (Arc<Mutex<()>>, Sender<()>, JoinHandle<()>) {
    let gate = Arc::new(Mutex::new(()));
    let (holds, held_open) = channel();
    let (shuts, is_shut) = channel();
    let of_holder = Arc::clone(&gate);
    let holder = std::thread::spawn(move || {
        let _hold = of_holder.lock();
        drop::<Sender<()>>(shuts);
        let _ = held_open.recv();
    });
    let _ = is_shut.recv();
    (gate, holds, holder)
}

async fn a_process_whose_threads_are_all_held_leaves_the_rows_to_others(db: &Db) {
    let (gate, holds, holder) = shut();
    let app = db.app().only([held::subscriber()]).state(Arc::clone(&gate));
    let stats = app.stats();
    let waited = || stats.subscribers().iter().map(|one| one.waited_too_long).sum::<u64>();
    let running = app.start().await.unwrap();
    let held = db.publish("q", 0).await;
    eventually("it times out", async || db.letters().await == 1).await;
    db.publish("q", 1).await;
    eventually("it is given back", async || waited() > 0).await;
    let leased = "SELECT count(*) FROM outbox WHERE acquired_token IS NOT NULL";
    eventually("nobody has it", async || db.int(leased).await == 0).await;
    // For longer than a lease.
    for _ in 0..70 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(db.int(leased).await, 0, "whoever cannot run it does not take it");
    }
    let (another, probe) = free("another", "q");
    let other = db.app().only([another]).start().await.unwrap();
    assert_eq!(probe.start().await.n, 1);
    other.stop().await.unwrap();
    db.publish("q", 2).await;
    drop(holds);
    eventually("it goes on", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    holder.join().unwrap();
    only_the_held_one_has_failed(db, held).await;
}

/// As [`held`], of batches.
#[subscriber(
    "q",
    batch = 10,
    max_workers = 1,
    timeout = "20ms",
    lease_ttl = "12s",
    min_poll = "50ms",
    max_poll = "100ms",
    retry = NoRetry
)]
fn held_together(numbers: Vec<i64>, State(gate): State<Arc<Mutex<()>>>) {
    if numbers.contains(&0) {
        drop(gate.lock());
    }
}

async fn each_row_of_a_batch_that_finds_no_thread_is_counted(db: &Db) {
    let (gate, holds, holder) = shut();
    let app = db.app().only([held_together::subscriber()]).state(gate);
    let stats = app.stats();
    let waited = || stats.subscribers().iter().map(|one| one.waited_too_long).sum::<u64>();
    let running = app.start().await.unwrap();
    let held = db.publish("q", 0).await;
    eventually("it times out", async || db.letters().await == 1).await;
    db.send_all((1..=5_i64).map(|n| outbox::Outgoing::new("q", &n))).await;
    let leased = "SELECT count(*) FROM outbox WHERE acquired_token IS NOT NULL";
    eventually("they are given back", async || waited() > 0 && db.int(leased).await == 0).await;
    assert_eq!(waited(), 5);
    drop(holds);
    eventually("it goes on", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    holder.join().unwrap();
    only_the_held_one_has_failed(db, held).await;
}
