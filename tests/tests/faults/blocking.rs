//! Handlers that block their thread, beside others. What holds leases meanwhile:
//! `a_lease_outlives_handlers_that_block_the_whole_runtime`.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use outbox::{Outgoing, State, subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::{Probe, free};
use outbox_tests::wait::eventually;
use tokio::time::Instant;

use super::publish;

on_both!(handlers_that_block_hold_up_no_other_queue);

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
const ROUNDS: std::ops::RangeInclusive<usize> = 6..=15;
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

/// More of them than the runtime has threads, and others that wait for them. The rates are
/// those of the best of several rounds, made by turns: whatever else the machine does slows
/// down some of them, while what blocks slows down all of its own.
async fn handlers_that_block_hold_up_no_other_queue(db: &Db) {
    let gate = Gate::default();
    let (other, probe) = free("other", "other");
    let app = db.app().state(gate.clone());
    let app = app.only([blocking::subscriber(), other.fetch_batch(BATCH)]);
    let running = app.start().await.unwrap();
    let (mut before, mut beside) = (Duration::MAX, Duration::MAX);
    let mut kept = 0.0;
    for made in 1..=*ROUNDS.end() {
        before = before.min(round(db, &probe).await);
        publish(db, "blocking", 0..200).await;
        eventually("four threads are blocked", async || gate.waiting() == 4).await;
        beside = beside.min(round(db, &probe).await);
        assert_eq!(gate.waiting(), 4, "and none of them is through");
        gate.open();
        empty(db, "blocking").await;
        gate.close();
        kept = before.as_secs_f64() / beside.as_secs_f64();
        if made >= *ROUNDS.start() && kept >= KEPT {
            break;
        }
    }
    println!("{ROWS} rows in {before:?}, and in {beside:?} beside handlers that block");
    assert!(kept >= KEPT, "the other queue keeps {kept:.2} of its rate");
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
}
