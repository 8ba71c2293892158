//! Handlers that block their thread, beside others. What holds leases meanwhile:
//! `a_lease_outlives_handlers_that_block_the_whole_runtime`.

use std::sync::{Arc, Condvar, Mutex};

use outbox::{State, subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::free;
use outbox_tests::wait::eventually;

use super::publish;

on_both!(handlers_that_block_hold_up_no_other_queue);

/// Closed until it is opened, for threads.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<(usize, bool)>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let (state, opened) = &*self.0;
        let mut state = state.lock().unwrap();
        state.0 += 1;
        let _open = opened.wait_while(state, |(_, open)| !*open).unwrap();
    }

    fn waiting(&self) -> usize {
        self.0.0.lock().unwrap().0
    }

    fn open(&self) {
        self.0.0.lock().unwrap().1 = true;
        self.0.1.notify_all();
    }
}

#[subscriber("blocking", max_workers = 4)]
fn blocking(_: i64, State(gate): State<Gate>) {
    gate.pass();
}

/// More of them than the runtime has threads.
async fn handlers_that_block_hold_up_no_other_queue(db: &Db) {
    let gate = Gate::default();
    let (other, probe) = free("other", "other");
    let app = db.app().state(gate.clone()).only([blocking::subscriber(), other]);
    let running = app.start().await.unwrap();
    publish(db, "blocking", 0..4).await;
    eventually("four threads are blocked", async || gate.waiting() == 4).await;
    publish(db, "other", 0..200).await;
    assert_eq!(probe.starts(200).await.len(), 200);
    assert_eq!(gate.waiting(), 4, "and none of them is through");
    gate.open();
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
}
