//! An app that starts, runs and stops.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::{App, Context, Outgoing, RunningApp, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::{self, Probe};
use outbox_tests::wait::{PATIENCE, eventually, soon};

use tokio::time::sleep;

use super::super::LEASE;
use super::ground::{Before, Ground};
use super::{MOST, floor_of, on, polled, swept_on};

on_both!(
    one thread: a_start_may_be_dropped_at_any_point,
    a_run_may_be_dropped_at_any_point,
    a_stop_that_is_dropped_goes_on_when_it_is_called_again,
    a_look_at_a_running_app_may_be_dropped_at_any_point,
);

/// Looks whose answer was there before it was asked for, on a machine that is busy.
const QUICK: usize = 20;

/// Of the functions that are called here.
pub const NAMES: [&str; 6] = [
    "app/mod.rs start",
    "app/mod.rs run",
    "app/mod.rs run_until",
    "app/running.rs stop",
    "app/running.rs ping",
    "health/mod.rs check",
];

fn with_handler(ground: &Ground<'_>, gated: bool) -> (App, Probe) {
    let make: fn(&'static str, &str) -> (Subscriber, Probe) =
        if gated { probe::gated } else { probe::free };
    let (subscriber, probe) = make("swept", "q");
    (ground.app().only([subscriber.lease_ttl(LEASE).max_workers(2).fetch_batch(10)]), probe)
}

/// Nothing of a dropped app is left, and another one works.
async fn is_gone(ground: &Ground<'_>) {
    if ground.db.is_postgres() {
        eventually("its sessions end", async || {
            ground.sessions().await == i64::from(ground.size())
        })
        .await;
    }
    ground.rests().await.unwrap();
    ground.prepare(Before::Message).await;
    let (app, probe) = with_handler(ground, false);
    let running = soon("it starts", app.start()).await.unwrap();
    probe.start().await;
    ground.db.drained().await;
    soon("it stops", running.stop()).await.unwrap();
}

async fn a_start_may_be_dropped_at_any_point(db: &Db) {
    let ground = Ground::of(db).await;
    for times in 0..MOST {
        ground.prepare(Before::Nothing).await;
        let started = polled(times, with_handler(&ground, false).0.start()).await;
        let ended = started.is_some();
        drop(started.map(Result::unwrap));
        is_gone(&ground).await;
        if ended {
            return swept_on(db, "starts", times);
        }
    }
    panic!("it does not end");
}

/// With handlers that wait for ever: they are dropped, and their rows come back.
async fn a_run_may_be_dropped_at_any_point(db: &Db) {
    let ground = Ground::of(db).await;
    let mut idle = 0;
    for times in 0..MOST {
        ground.prepare(Before::Message).await;
        let (app, probe) = with_handler(&ground, true);
        let run = async {
            if times % 2 == 0 { app.run().await } else { app.run_until(pending::<()>()).await }
        };
        let dropped = async {
            tokio::select! {
                biased;
                // What starts handlers is the last that it does: nobody polls it any more.
                _ = probe.start_ever() => false,
                ended = polled(times, run) => {
                    assert!(ended.is_none());
                    true
                }
            }
        };
        let dropped = soon("it is dropped, or a handler runs", dropped).await;
        eventually("its lease is given back", async || db.leased().await == 0).await;
        is_gone(&ground).await;
        idle = if dropped { 0 } else { idle + 1 };
        // In either of the two ways.
        if idle == 2 {
            return swept_on(db, "runs", times + 1);
        }
    }
    panic!("it is never idle");
}

async fn a_stop_that_is_dropped_goes_on_when_it_is_called_again(db: &Db) {
    let ground = Ground::of(db).await;
    for times in 0..MOST {
        ground.prepare(Before::Nothing).await;
        let handled = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&handled);
        let slow = move |_: Context| {
            let counted = Arc::clone(&counted);
            async move {
                sleep(Duration::from_millis(5)).await;
                counted.fetch_add(1, Ordering::SeqCst);
            }
        };
        let slow = Subscriber::new("slow", "q", slow).lease_ttl(LEASE).max_workers(2);
        ground.db.send_all((0..10).map(|n| Outgoing::new("q", &n))).await;
        let running = soon("it starts", ground.app().only([slow]).start()).await.unwrap();
        let ended = polled(times, running.stop()).await;
        soon("it stops", running.stop()).await.unwrap();
        let acked = 10 - usize::try_from(db.rows().await).unwrap();
        assert_eq!((db.leased().await, acked), (0, handled.load(Ordering::SeqCst)));
        is_gone(&ground).await;
        if let Some(ended) = ended {
            ended.unwrap();
            return swept_on(db, "stops", times);
        }
    }
    panic!("it does not end");
}

/// Ten rows, of which two are being handled.
async fn busy(ground: &Ground<'_>) -> (RunningApp, Probe) {
    ground.prepare(Before::Nothing).await;
    let (app, probe) = with_handler(ground, true);
    ground.db.send_all((0..10).map(|n| Outgoing::new("q", &n))).await;
    let running = soon("it starts", app.start()).await.unwrap();
    probe.starts(2).await;
    (running, probe)
}

async fn a_look_at_a_running_app_may_be_dropped_at_any_point(db: &Db) {
    let ground = Ground::of(db).await;
    let (running, probe) = busy(&ground).await;
    let health = running.health().limit(PATIENCE);
    let (mut times, mut quick, what) = (0, 0, "looks at an app");
    loop {
        running.forget_schema();
        let looks = async {
            running.ping().await.unwrap();
            health.check().await
        };
        let ended = polled(times, looks).await;
        soon("a ping", running.ping()).await.unwrap();
        assert!(soon("a check", health.check()).await.ready);
        if ended.is_none() {
            times += 1;
            assert!(times < MOST, "it does not end");
        } else if quick < QUICK && floor_of(&on(db, what)).is_some_and(|floor| times < floor) {
            quick += 1;
        } else {
            swept_on(db, what, times);
            break;
        }
    }
    probe.let_end(10);
    db.drained().await;
    soon("it stops", running.stop()).await.unwrap();
    is_gone(&ground).await;
}
