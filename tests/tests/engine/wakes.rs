//! Nobody waits for a poll: a subscriber that polls once an hour handles what is
//! published, and what becomes due, at its time.

use std::time::Duration;

use outbox::Outgoing;
use outbox::retry::Constant;
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::{Probe, with_result};
use tokio::time::{Instant, timeout};

use super::clock::{claimed_after_due, delay, late, median, slack};
use super::{asleep, free, gated};

on_both!(
    a_publish_is_handled_at_once,
    a_future_row_fires_at_its_time,
    a_timer_fires_at_its_time,
    a_retry_fires_at_its_time,
    rows_due_close_together_are_each_handled,
    a_row_that_comes_due_sooner_than_the_next_is_not_late,
    every_queue_of_a_transaction_wakes,
    a_burst_is_drained_by_its_wakes,
    bursts_from_many_transactions_are_drained_by_their_wakes,
);

/// What an idle subscriber may take.
const AT_ONCE: Duration = Duration::from_millis(50);
const ROUNDS: usize = 7;

async fn a_publish_is_handled_at_once(db: &Db) {
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    let mut took = Vec::new();
    for n in 0..ROUNDS {
        let begun = Instant::now();
        db.publish("q", i64::try_from(n).unwrap()).await;
        took.push(probe.start().await.at - begun);
        db.drained().await;
    }
    let limit = AT_ONCE + slack(db).await;
    assert!(median(took.clone()) < limit, "{took:?}");
    running.stop().await.unwrap();
}

/// Waits for the run of a row and says how late it is.
async fn lateness(db: &Db, probe: &Probe) -> Duration {
    let run = probe.start().await;
    let late = late(db, run.id).await;
    let early = claimed_after_due(db, run.id).await;
    assert!(early >= 0, "{early} µs before its time");
    late
}

async fn fires_in_time(db: &Db, message: impl Fn(usize) -> Outgoing) {
    let after = Duration::from_millis(250);
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let id = db.send(message(round).delay(after)).await.id().unwrap();
        let asked = delay(db, id).await;
        assert!(asked.abs_diff(after) < Duration::from_millis(25), "{asked:?}");
        times.push(lateness(db, &probe).await);
        probe.let_end(1);
        db.drained().await;
    }
    let limit = AT_ONCE + slack(db).await;
    assert!(median(times.clone()) < limit, "{times:?}");
    running.stop().await.unwrap();
}

async fn a_future_row_fires_at_its_time(db: &Db) {
    fires_in_time(db, |n| Outgoing::new("q", &n)).await;
}

async fn a_timer_fires_at_its_time(db: &Db) {
    fires_in_time(db, |n| Outgoing::new("q", &n).timer_id("tick")).await;
}

async fn a_retry_fires_at_its_time(db: &Db) {
    let (subscriber, probe) =
        asleep(with_result(
            "it",
            "q",
            |run| {
                if run.attempts < 7 { Err("again".into()) } else { Ok(()) }
            },
        ));
    let retry = Constant::new(Duration::from_millis(200)).jitter(0.0).max_attempts(100);
    let running = db.app().only([subscriber.retry(retry)]).start().await.unwrap();
    db.publish("q", 7).await;
    probe.start().await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        probe.let_end(1);
        times.push(lateness(db, &probe).await);
    }
    probe.let_end(1);
    db.drained().await;
    let limit = AT_ONCE + slack(db).await;
    assert!(median(times.clone()) < limit, "{times:?}");
    running.stop().await.unwrap();
}

/// The second of two becomes due while the first is being claimed: whoever looks
/// only at what is due, and then at what is still to come, overlooks it.
async fn rows_due_close_together_are_each_handled(db: &Db) {
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    for gap in (0..40).map(|step| Duration::from_micros(step * 150)) {
        let first = Duration::from_millis(20);
        let pair = [first, first + gap].map(|delay| Outgoing::new("q", &1).delay(delay));
        db.send_all(pair).await;
        // Sooner than the listener is tested, after which there is a look as well.
        let both = timeout(Duration::from_secs(10), probe.starts(2)).await;
        assert!(both.is_ok(), "one of two rows {gap:?} apart was overlooked");
    }
    db.drained().await;
    running.stop().await.unwrap();
}

async fn a_row_that_comes_due_sooner_than_the_next_is_not_late(db: &Db) {
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    db.send(Outgoing::new("q", &1).delay(super::HOUR)).await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        db.send(Outgoing::new("q", &2).delay(Duration::from_millis(100))).await;
        times.push(lateness(db, &probe).await);
        probe.let_end(1);
    }
    let limit = AT_ONCE + slack(db).await;
    assert!(median(times.clone()) < limit, "{times:?}");
    running.stop().await.unwrap();
    assert_eq!(db.rows().await, 1);
}

async fn every_queue_of_a_transaction_wakes(db: &Db) {
    let (subscribers, probes): (Vec<_>, Vec<_>) = ["a", "b", "c"].map(free).into_iter().unzip();
    let running = db.app().only(subscribers).start().await.unwrap();
    for (probe, queue) in probes.iter().zip(["a", "b", "c"]) {
        probe.falls_asleep(db, queue).await;
    }
    for n in 0..3 {
        db.send_all(["a", "b", "c"].map(|queue| Outgoing::new(queue, &n))).await;
        for probe in &probes {
            assert_eq!(probe.start().await.n, n);
        }
    }
    db.drained().await;
    running.stop().await.unwrap();
}

async fn a_burst_is_drained_by_its_wakes(db: &Db) {
    let (subscriber, probe) = free("q");
    let subscriber = subscriber.fetch_batch(7).max_workers(3);
    let running = db.app().only([subscriber]).start().await.unwrap();
    probe.falls_asleep(db, "q").await;
    db.send_all((0..300).map(|n| Outgoing::new("q", &n))).await;
    let mut seen: Vec<i64> = probe.starts(300).await.iter().map(|run| run.n).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..300));
    db.drained().await;
    running.stop().await.unwrap();
}

async fn bursts_from_many_transactions_are_drained_by_their_wakes(db: &Db) {
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    probe.falls_asleep(db, "q").await;
    let burst = async |from: i64| {
        for n in from..from + 25 {
            db.publish("q", n).await;
        }
    };
    tokio::join!(burst(0), burst(25), burst(50), burst(75));
    let mut seen: Vec<i64> = probe.starts(100).await.iter().map(|run| run.n).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..100));
    db.drained().await;
    running.stop().await.unwrap();
}
