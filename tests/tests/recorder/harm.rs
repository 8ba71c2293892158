//! Sinks that panic, and sinks that block.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use outbox::telemetry::Event;
use outbox::{Outgoing, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::wait::eventually;
use tokio::time::Instant;

use outbox_tests::kept::Kept;

on_both!(
    a_sink_that_panics_hurts_no_delivery_and_gets_the_next_event,
    a_sink_that_blocks_hurts_no_delivery_and_what_it_misses_is_counted,
);

const ROWS: i64 = 200;

async fn a_sink_that_panics_hurts_no_delivery_and_gets_the_next_event(db: &Db) {
    let kept = Kept::default();
    let record = kept.recorder();
    let panics = move |event: &Event| {
        // Perhaps of another test's publisher, and after the end.
        if let Event::Published { .. } = event {
            return;
        }
        record(event);
        panic!("a sink of the test panics");
    };
    let acks = Subscriber::new("it", "q", |_| async {});
    let app = db.app().only([acks]).recorder(panics);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    db.send_all((0..ROWS).map(|n| Outgoing::new("q", &n))).await;
    db.drained().await;
    running.ping().await.unwrap();
    running.stop().await.unwrap();
    let rows = usize::try_from(ROWS).unwrap();
    kept.gets(rows, "acked").await;
    assert_eq!((kept.count("dispatched"), kept.count("acked")), (rows, rows));
    // One is counted when it is over, a moment after the sink has written down the event.
    eventually("each panic is counted", async || {
        stats.recorder_panics() == kept.events().len() as u64
    })
    .await;
    assert_eq!(stats.recorder_dropped(), 0);
}

/// More events than may wait for it.
async fn a_sink_that_blocks_hurts_no_delivery_and_what_it_misses_is_counted(db: &Db) {
    const EVENTS: u64 = 20_000;
    let (release, gate) = channel::<()>();
    let (kept, gate) = (Kept::default(), Mutex::new(gate));
    let record = kept.recorder();
    let blocks = move |event: &Event| {
        let _ = gate.lock().unwrap().recv();
        record(event);
    };
    let acks = Subscriber::new("it", "q", |_| async {});
    let app = db.app().only([acks.max_workers(10)]).recorder(blocks);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    for _ in 0..10 {
        db.send_all((0..1000).map(|n| Outgoing::new("q", &n))).await;
    }
    db.drained().await;
    // The rows are gone a moment before the answer that says so is here.
    eventually("each row is counted", async || {
        let counts = stats.subscribers().remove(0);
        (counts.dispatched, counts.acked) == (10_000, 10_000)
    })
    .await;
    let dropped = stats.recorder_dropped();
    assert!(dropped >= EVENTS - 16_384 - 1, "{dropped} of {EVENTS}, or more, were dropped");
    running.ping().await.unwrap();
    let begun = Instant::now();
    running.stop().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "a stop waits a second for it, no longer");
    drop(release);
    eventually("what waited is recorded", async || kept.events().len() > 16_000).await;
}
