//! The n-th write to a SQLite file fails, for every n: no space, an error of the disk, a
//! flush that fails, a lock that another process has.
//!
//! A call to the operating system is made to fail, in a process of its own.

mod child;
mod flow;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use outbox_tests::db::Db;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use child::{Calls, Ended, Fault, swept};
use flow::{FLOWS, Flow};

/// Processes at a time.
const AT_ONCE: usize = 8;
/// Runs of a case, until its fault happens.
const TRIES: usize = 12;

macro_rules! swept {
    ($(fn $test:ident() => $flow:literal;)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            sweep($flow).await;
        })*

        #[test]
        fn every_flow_is_swept() {
            let swept = BTreeSet::from([$($flow),*]);
            assert_eq!(swept, FLOWS.iter().map(|flow| flow.name).collect());
        }
    };
}

swept! {
    fn a_publish_survives_a_failed_write() => "publish";
    fn a_batch_survives_a_failed_write() => "batch";
    fn a_timer_survives_a_failed_write() => "timer";
    fn a_cancel_survives_a_failed_write() => "cancel";
    fn a_replay_survives_a_failed_write() => "replay";
    fn a_purge_survives_a_failed_write() => "purge";
    fn a_pause_survives_a_failed_write() => "pause";
    fn a_migration_survives_a_failed_write() => "migrate";
    fn a_start_survives_a_failed_write() => "start";
    fn an_ack_survives_a_failed_write() => "ack";
    fn a_batch_of_acks_survives_a_failed_write() => "batch ack";
    fn an_ack_that_publishes_survives_a_failed_write() => "ack and publish";
    fn a_retry_survives_a_failed_write() => "retry";
    fn a_dead_letter_survives_a_failed_write() => "dead letter";
    fn a_snooze_survives_a_failed_write() => "snooze";
    fn a_drain_survives_a_failed_write() => "drain";
    fn an_extension_survives_a_failed_write() => "extend";
    fn a_lent_transaction_survives_a_failed_write() => "transaction";
}

/// Cases of all flows, at least.
pub fn floor() -> usize {
    FLOWS.iter().map(|flow| Fault::all(flow.floor, flow.has_handler()).len()).sum()
}

async fn sweep(name: &str) {
    let flow = FLOWS.iter().find(|flow| flow.name == name).unwrap();
    let begun = Instant::now();
    let (calls, floor) = (least(flow).await, flow.floor);
    assert!(
        calls.writes >= floor.writes
            && calls.flushes >= floor.flushes
            && calls.locks >= floor.locks,
        "{name}: {calls:?}, which is less than {floor:?}"
    );
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut cases = JoinSet::new();
    let faults = Fault::all(calls, flow.has_handler());
    let total = faults.len();
    for fault in faults {
        let places = Arc::clone(&places);
        cases.spawn(async move {
            let _place = places.acquire_owned().await.unwrap();
            (fault, tokio::spawn(struck(flow, fault)).await)
        });
    }
    let (mut failed, mut again, mut never) = (Vec::new(), 0, 0);
    while let Some(ended) = cases.join_next().await {
        match ended.unwrap() {
            (_, Ok(Some(times))) => again += times,
            (_, Ok(None)) => never += 1,
            (fault, Err(_)) => failed.push(format!("{fault:?}")),
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{name}: {calls:?}, {total} cases in {took:.1} s, {again} runs ended before it, \
         {never} never happened"
    );
    assert!(failed.is_empty(), "{name}: {} of {total} cases failed: {failed:?}", failed.len());
}

/// Calls that there are in every run: how often the loops of an engine look differs, and
/// with it how many there are. As many runs at once as there are with faults, so that these
/// find the machine as busy.
async fn least(flow: &'static Flow) -> Calls {
    let runs: JoinSet<_> = (0..AT_ONCE).map(|_| play(flow, None)).collect();
    let runs = runs.join_all().await.into_iter();
    runs.map(|(_, calls)| calls).reduce(Calls::min_of).unwrap()
}

/// How many runs ended before the fault could happen; `None` if all did. None of the calls that
/// the flow always makes is left out: a fault of theirs that does not happen fails.
async fn struck(flow: &'static Flow, fault: Fault) -> Option<usize> {
    for again in 0..TRIES {
        let (struck, calls) = play(flow, Some(fault)).await;
        if struck {
            return Some(again);
        }
        assert!(fault.is_beyond(calls), "{fault:?} did not happen in {calls:?}");
        assert!(fault.is_beyond(flow.floor), "{calls:?}: the flow is not what it was");
    }
    None
}

/// Whether the fault happened, and the calls that were made.
async fn play(flow: &'static Flow, fault: Option<Fault>) -> (bool, Calls) {
    let db = Db::bare_sqlite().await.unwrap();
    flow.prepare(&db).await;
    // Nobody else has the file open.
    let file = db.url.clone();
    db.shut().await;
    let Ended { mut lines, struck, calls } = swept(&file, flow.name, 1, fault).await;
    let stuck = lines.iter().any(|line| line.starts_with("stuck"));
    assert!(!stuck, "the app did not get over {fault:?}: {lines:?}");
    let failed = lines.iter().filter(|line| line.starts_with("failed")).count();
    assert!(failed <= usize::from(struck), "one fault, one failure: {fault:?}: {lines:?}");
    if lines.last().is_some_and(|line| line.starts_with("failed")) {
        // What has become of that call nobody was told: a flush that fails may leave the
        // whole transaction in the log. Who comes next deals with it.
        lines.extend(swept(&file, flow.name, 4, None).await.lines);
    }
    let told = format!("{fault:?}: {lines:?}");
    assert!(lines.last().is_some_and(|line| line.starts_with("ended")), "{told}");

    let options: SqliteConnectOptions = file.parse().unwrap();
    let mut connection = options.connect().await.unwrap();
    let sound: String =
        sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap();
    assert_eq!(sound, "ok", "{told}");
    flow.check(&mut connection, &lines).await;
    connection.close().await.unwrap();
    db.close().await;
    (struck, calls)
}
