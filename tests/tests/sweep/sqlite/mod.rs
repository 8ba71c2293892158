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

use child::{Ended, Fault, swept};
use flow::{FLOWS, Flow};

/// Processes at a time.
const AT_ONCE: usize = 8;

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
    fn a_timer_survives_a_failed_write() => "timer";
    fn a_cancel_survives_a_failed_write() => "cancel";
    fn a_replay_survives_a_failed_write() => "replay";
    fn a_purge_survives_a_failed_write() => "purge";
    fn a_pause_survives_a_failed_write() => "pause";
    fn a_migration_survives_a_failed_write() => "migrate";
    fn an_ack_survives_a_failed_write() => "ack";
    fn an_ack_that_publishes_survives_a_failed_write() => "ack and publish";
    fn a_retry_survives_a_failed_write() => "retry";
    fn a_dead_letter_survives_a_failed_write() => "dead letter";
    fn a_snooze_survives_a_failed_write() => "snooze";
    fn an_extension_survives_a_failed_write() => "extend";
    fn a_lent_transaction_survives_a_failed_write() => "transaction";
}

async fn sweep(name: &str) {
    let flow = FLOWS.iter().find(|flow| flow.name == name).unwrap();
    let begun = Instant::now();
    let mut least = None;
    for _ in 0..2 {
        let (_, calls) = play(flow, None).await;
        least = Some(least.map_or(calls, |least| calls.min_of(least)));
    }
    let calls = least.unwrap();
    assert!(calls.writes >= flow.writes, "{name}: {calls:?}, and it had {}", flow.writes);
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
    let (mut failed, mut beyond) = (Vec::new(), 0);
    while let Some(ended) = cases.join_next().await {
        match ended.unwrap() {
            (_, Ok(happened)) => beyond += usize::from(!happened),
            (fault, Err(_)) => failed.push(format!("{fault:?}")),
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!("{name}: {calls:?}, {total} cases in {took:.1} s, {beyond} behind the last call");
    assert!(failed.is_empty(), "{name}: {} of {total} cases failed: {failed:?}", failed.len());
    assert!(beyond * 10 < total, "{name}: {beyond} of {total}");
}

/// False when there were always too few calls: how often the loops of an engine look differs.
async fn struck(flow: &'static Flow, fault: Fault) -> bool {
    for _ in 0..5 {
        let (struck, calls) = play(flow, Some(fault)).await;
        if struck {
            return true;
        }
        let least = child::Calls { writes: flow.writes, flushes: 0, locks: 0 };
        assert!(fault.is_beyond(calls), "{fault:?} did not happen in {calls:?}");
        assert!(fault.is_beyond(least), "{calls:?}: the flow is not what it was");
    }
    false
}

/// Whether the fault happened, and the calls that were made.
async fn play(flow: &'static Flow, fault: Option<Fault>) -> (bool, child::Calls) {
    let db = Db::bare_sqlite().await.unwrap();
    flow.prepare(&db).await;
    // Nobody else has the file open.
    let file = db.url.clone();
    db.shut().await;
    let Ended { mut lines, struck, calls } = swept(&file, flow.name, 1, fault).await;
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
