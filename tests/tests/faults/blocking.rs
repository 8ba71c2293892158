//! Handlers that block their thread, beside others. What holds leases meanwhile:
//! `a_lease_outlives_handlers_that_block_the_whole_runtime`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use outbox::{Context, Outgoing, State, Subscriber, subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::{Probe, free, gated};
use outbox_tests::wait::{PATIENCE, eventually, soon};
use tokio::time::Instant;

use super::{SECOND, drain, publish};

on_both!(
    handlers_that_block_hold_up_no_other_queue,
    a_handler_that_never_ends_holds_up_no_other_and_a_stop_only_for_its_time,
);

/// For threads; closed until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<Threads>, Condvar)>);

#[derive(Default)]
struct Threads {
    waiting: usize,
    pass: bool,
}

impl Gate {
    fn pass(&self) {
        let (threads, opened) = &*self.0;
        let mut threads = threads.lock().unwrap();
        threads.waiting += 1;
        let mut threads = opened.wait_while(threads, |it| !it.pass).unwrap();
        threads.waiting -= 1;
    }

    fn waiting(&self) -> usize {
        self.0.0.lock().unwrap().waiting
    }

    fn open(&self) {
        self.0.0.lock().unwrap().pass = true;
        self.0.1.notify_all();
    }

    fn close(&self) {
        self.0.0.lock().unwrap().pass = false;
    }
}

#[subscriber("blocking", max_workers = 4)]
fn blocking(_: i64, State(gate): State<Gate>) {
    gate.pass();
}

/// In forty claims, so that it shows if each of them is held up a little.
const ROWS: usize = 2000;
const BATCH: usize = 50;
/// So many rounds of each kind are made at least, and at most.
const ROUNDS: std::ops::RangeInclusive<usize> = 7..=15;
/// Of the rate without handlers that block.
const KEPT: f64 = 0.8;

/// How long the other queue takes for its rows.
async fn round(db: &Db, probe: &Probe) -> Duration {
    db.send_all((0..ROWS).map(|n| Outgoing::new("other", &n))).await;
    let at = Instant::now();
    let last = probe.starts(ROWS).await.iter().map(|run| run.at).max().unwrap();
    empty(db, "other").await;
    last - at
}

async fn empty(db: &Db, queue: &str) {
    let rows = format!("SELECT count(*) FROM outbox WHERE queue = '{queue}'");
    eventually("its rows are gone", async || db.int(&rows).await == 0).await;
}

/// More of them than the runtime has threads, and others that wait for them. Each round without
/// them has one beside them, right behind it. The median of these pairs counts, or the best of each
/// kind, if that is more: whatever else the machine does slows down some rounds of both kinds, while
/// what blocks slows down all of its own.
async fn handlers_that_block_hold_up_no_other_queue(db: &Db) {
    let gate = Gate::default();
    let (other, probe) = free("other", "other");
    let app = db.app().state(gate.clone());
    let app = app.only([blocking::subscriber(), other.fetch_batch(BATCH)]);
    let running = app.start().await.unwrap();
    let (mut pairs, mut best) = (Vec::new(), (Duration::MAX, Duration::MAX));
    let mut kept = 0.0;
    for made in 1..=*ROUNDS.end() {
        let before = round(db, &probe).await;
        publish(db, "blocking", 0..200).await;
        eventually("four threads are blocked", async || gate.waiting() == 4).await;
        let beside = round(db, &probe).await;
        assert_eq!(gate.waiting(), 4, "and none of them is through");
        gate.open();
        empty(db, "blocking").await;
        gate.close();
        best = (best.0.min(before), best.1.min(beside));
        pairs.push(before.as_secs_f64() / beside.as_secs_f64());
        pairs.sort_by(f64::total_cmp);
        let of_best = best.0.as_secs_f64() / best.1.as_secs_f64();
        kept = pairs[(pairs.len() - 1) / 2].max(of_best);
        if made >= *ROUNDS.start() && kept >= KEPT {
            break;
        }
    }
    println!("kept of the rate, each pair of rounds: {pairs:.2?}");
    assert!(kept >= KEPT, "the other queue keeps {kept:.2} of its rate");
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
}

/// Loops without an `await`: on a thread of the runtime, of which there are two, and on one
/// of its own.
fn endless(name: &'static str, turns: &Turns) -> Subscriber {
    let turns = turns.clone();
    Subscriber::new(name, "endless", move |_: Context| {
        let turns = turns.clone();
        async move { turns.go_on_for_ever() }
    })
}

#[subscriber("endless too")]
fn endless_too(_: i64, State(turns): State<Turns>) {
    turns.go_on_for_ever();
}

/// Of the handlers that loop, until the test is over.
#[derive(Clone, Default)]
struct Turns(Arc<(AtomicUsize, AtomicBool)>);

impl Turns {
    /// For longer than the test, which would hang with them if they took all threads.
    fn go_on_for_ever(&self) {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        while !self.0.1.load(Ordering::SeqCst) && begun.elapsed() < 3 * PATIENCE {
            // Nothing that a runtime would notice; it leaves the processor to other tests.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        self.0.0.1.store(true, Ordering::SeqCst);
    }
}

/// Ends them, also when the test fails: a runtime waits for its threads.
struct Over(Turns);

/// Others go on, and keep their leases; so do those that loop.
async fn a_handler_that_never_ends_holds_up_no_other_and_a_stop_only_for_its_time(db: &Db) {
    let turns = Turns::default();
    let _over = Over(turns.clone());
    let ttl = 12 * SECOND;
    let (long, runs) = gated("long", "long");
    let (other, others) = free("other", "other");
    let looping =
        [endless("endless", &turns).lease_ttl(ttl), endless_too::subscriber().lease_ttl(ttl)];
    let app = db.app().state(turns.clone()).drain_timeout(SECOND);
    let app = app.only(looping).only([long.lease_ttl(ttl), other]);
    let running = app.start().await.unwrap();
    publish(db, "long", [1]).await;
    let run = runs.start().await;
    publish(db, "endless", [1]).await;
    publish(db, "endless too", [1]).await;
    eventually("both loop", async || turns.0.0.load(Ordering::SeqCst) == 2).await;
    // Well past the leases that all three began with.
    let past = Instant::now() + 2 * ttl;
    for n in 0..20 {
        publish(db, "other", [n]).await;
        assert_eq!(others.start().await.n, n);
    }
    empty(db, "other").await;
    eventually("leases go on", async || run.context.lease_deadline() > past).await;
    let again = "SELECT count(*) FROM outbox WHERE deliveries_count <> 1";
    assert_eq!((db.int(again).await, turns.0.0.load(Ordering::SeqCst)), (0, 2));
    assert!(!run.context.cancelled().is_cancelled());
    runs.let_end(1);
    empty(db, "long").await;

    let begun = Instant::now();
    soon("the stop ends", running.stop()).await.unwrap_err();
    let took = begun.elapsed();
    println!("the stop took {took:?}");
    assert!((SECOND..drain::IN_TIME).contains(&took), "{took:?}");
    // They come back when their leases run out: to a process that lives.
    assert_eq!((db.rows().await, db.letters().await), (2, 0));
}
