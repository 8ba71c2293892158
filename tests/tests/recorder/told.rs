//! What a recorder is told.

use std::sync::Arc;
use std::time::Duration;

use outbox::retry::{Constant, NoRetry};
use outbox::telemetry::Event;
use outbox::{FailureReason, Outgoing, Subscriber};
use outbox_tests::db::{Db, Pool};
use outbox_tests::on_both;
use outbox_tests::probe::{free, gated};
use outbox_tests::wait::eventually;
use tokio::time::Instant;

use outbox_tests::backend::unique;
use outbox_tests::kept::Kept;

on_both!(
    every_delivery_is_told_from_its_dispatch_to_its_end,
    the_events_say_what_they_are_about,
    what_the_app_s_publisher_publishes_is_told,
    a_drain_that_takes_too_long_is_told,
    wakes_that_arrive_are_told,
    what_hooks_publish_at_the_end_is_recorded,
    what_was_told_before_the_end_is_recorded_at_the_end,
    a_recorder_goes_with_an_app_that_is_dropped,
    a_run_in_the_place_of_another_keeps_its_recorders,
);

async fn every_delivery_is_told_from_its_dispatch_to_its_end(db: &Db) {
    let later = Subscriber::new("it", "q", |ctx: outbox::Context| async move {
        if ctx.attempts() == 0 { Err("not yet") } else { Ok(()) }
    });
    let (kept, other) = (Kept::default(), Kept::default());
    let retry = Constant::new(Duration::from_millis(1));
    let app = db.app().only([later.retry(retry)]).recorder(kept.recorder());
    let app = app.recorder(other.recorder());
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    db.drained().await;
    running.stop().await.unwrap();
    kept.gets(1, "acked").await;
    other.gets(1, "acked").await;
    let ways = ["dispatched", "nacked_retried", "dispatched", "acked"];
    assert_eq!(kept.deliveries(), ways);
    assert_eq!(other.deliveries(), ways, "each recorder gets all of them");
}

async fn the_events_say_what_they_are_about(db: &Db) {
    let dies = Subscriber::new("dies", "q", |_| async { Err::<(), _>(std::fmt::Error) });
    let kept = Kept::default();
    let app = db.app().only([dies.retry(NoRetry)]).recorder(kept.recorder());
    let running = app.start().await.unwrap();
    let id = db.publish("q", 7).await;
    db.drained().await;
    running.stop().await.unwrap();
    kept.gets(1, "dlq_written").await;
    let events = kept.events();
    for delivery in events.iter().filter_map(Event::delivery) {
        assert_eq!((&*delivery.queue, delivery.subscriber), ("q", "dies"));
        assert_eq!((delivery.row_id, delivery.deliveries_count), (id, 1));
    }
    let [size] = events
        .iter()
        .filter_map(|event| match event {
            Event::Dispatched { size_bytes, .. } => Some(*size_bytes),
            _ => None,
        })
        .collect::<Vec<_>>()[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(size, 1, "the payload is `7`");
    let terminal = events.iter().find_map(|event| match event {
        Event::Terminal { reason, exception_type, duration, .. } => {
            Some((*reason, exception_type.as_deref(), duration.is_some()))
        }
        _ => None,
    });
    assert_eq!(terminal, Some((FailureReason::RetryTerminal, Some("fmt::Error"), true)));
    assert_eq!(kept.count("dlq_written"), 1);
    let fetched = events.iter().filter_map(|event| match event {
        Event::Fetched { count, .. } => Some(*count),
        _ => None,
    });
    assert_eq!(fetched.sum::<usize>(), 1);
}

async fn what_the_app_s_publisher_publishes_is_told(db: &Db) {
    let kept = Kept::default();
    let publishes = Subscriber::new("it", "of-the-app", |ctx: outbox::Context| async move {
        ctx.publisher().collect(Outgoing::new("collected", &[1, 2, 3])).unwrap();
    });
    let app = db.app().only([publishes]).recorder(kept.recorder());
    let publisher = app.publisher();
    match &db.pool {
        Pool::Postgres(pool) => {
            let mut tx = pool.begin().await.unwrap();
            publisher.publish(&mut tx, "of-the-app", &7).await.unwrap();
            tx.commit().await.unwrap();
        }
        Pool::Sqlite(pool) => {
            let mut tx = outbox::sqlite::begin(pool).await.unwrap();
            publisher.publish(&mut tx, "of-the-app", &7).await.unwrap();
            tx.commit().await.unwrap();
        }
    }
    let running = app.start().await.unwrap();
    eventually("it is handled", async || {
        db.int("SELECT count(*) FROM outbox WHERE queue = 'of-the-app'").await == 0
    })
    .await;
    // A test's messages are nobody's.
    let broker = outbox::testing::TestBroker::with([free("it", "another").0]);
    broker.publish("of-the-app", &9).await.unwrap();
    running.stop().await.unwrap();
    broker.publish("of-the-app", &9).await.unwrap();
    // Nor is what is published without an app when this one has stopped.
    db.publish("of-the-app", 9).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    // Publishers without an app tell whichever started last, those of other tests too.
    let ours = |queue: &str| ["of-the-app", "collected"].contains(&queue);
    let published = || -> Vec<_> {
        let told = kept.events().into_iter().filter_map(|event| match event {
            Event::Published { queue, count, size_bytes, exception_type: None, .. }
                if ours(&queue) =>
            {
                Some((queue.to_string(), count, size_bytes))
            }
            _ => None,
        });
        told.collect()
    };
    eventually("both are recorded", async || published().len() >= 2).await;
    let expected = [("of-the-app", 1, 1), ("collected", 1, 7)];
    assert_eq!(published(), expected.map(|(queue, count, bytes)| (queue.to_owned(), count, bytes)));
}

async fn a_drain_that_takes_too_long_is_told(db: &Db) {
    let kept = Kept::default();
    let (subscriber, probe) = gated("slow", "q");
    let app = db.app().only([subscriber]).drain_timeout(Duration::from_millis(20));
    let running = app.recorder(kept.recorder()).start().await.unwrap();
    db.publish("q", 7).await;
    probe.start().await;
    running.stop().await.unwrap_err();
    kept.gets(1, "dispatch_abandoned").await;
    assert_eq!(kept.deliveries(), ["dispatched", "dispatch_abandoned"]);
    assert_eq!(kept.count("drain_timeout"), 1);
}

async fn wakes_that_arrive_are_told(db: &Db) {
    for stopped in [true, false] {
        let kept = Kept::default();
        let running =
            db.app().only([gated("it", "q").0]).recorder(kept.recorder()).start().await.unwrap();
        eventually("it listens", async || kept.count("listener") == 1).await;
        if stopped {
            running.stop().await.unwrap();
        }
        drop(running);
        kept.gets(2, "listener").await;
        let listener = kept.events().into_iter().filter_map(|event| match event {
            Event::Listener { up, .. } => Some(up),
            _ => None,
        });
        assert_eq!(listener.collect::<Vec<_>>(), [true, false]);
    }
}

async fn what_hooks_publish_at_the_end_is_recorded(db: &Db) {
    for tries_left in (0..10).rev() {
        let kept = Kept::default();
        // Others of the process are none of its business.
        let queue = unique("hook");
        let slow = {
            let (record, own) = (kept.recorder(), queue.clone());
            move |event: &Event| {
                if matches!(event, Event::Published { queue, .. } if **queue == *own) {
                    std::thread::sleep(Duration::from_millis(10));
                    record(event);
                }
            }
        };
        let app = db.app().only([gated("it", "q").0]).recorder(slow);
        let (publisher, pool) = (app.publisher(), db.pool.clone());
        let app = app.on_shutdown(move || {
            let (publisher, pool, queue) = (publisher.clone(), pool.clone(), queue.clone());
            async move {
                match pool {
                    Pool::Postgres(pool) => {
                        let mut tx = pool.begin().await?;
                        publisher.publish(&mut tx, queue, &7).await?;
                        tx.commit().await?;
                    }
                    Pool::Sqlite(pool) => {
                        let mut tx = outbox::sqlite::begin(&pool).await?;
                        publisher.publish(&mut tx, queue, &7).await?;
                        tx.commit().await?;
                    }
                }
                Ok::<_, outbox::BoxError>(())
            }
        });
        let begun = Instant::now();
        app.start().await.unwrap().stop().await.unwrap();
        if kept.count("published") == 1 {
            return;
        }
        let cut_off = tries_left > 0 && begun.elapsed() >= Duration::from_secs(1);
        assert!(cut_off, "{:?}", kept.events());
    }
}

/// A stop waits for recorders, so that the last events are not lost with the process; for a
/// second, which a machine that stands still may use up: then it is stopped again.
async fn what_was_told_before_the_end_is_recorded_at_the_end(db: &Db) {
    for tries_left in (0..10).rev() {
        let kept = Kept::default();
        let slow = {
            let record = kept.recorder();
            move |event: &Event| {
                // Others of the process are none of its business.
                if event.delivery().is_some() {
                    std::thread::sleep(Duration::from_millis(10));
                    record(event);
                }
            }
        };
        let acks = Subscriber::new("it", "q", |_| async {});
        let running = db.app().only([acks]).recorder(slow).start().await.unwrap();
        db.send_all((0..10).map(|n| Outgoing::new("q", &n))).await;
        db.drained().await;
        let begun = Instant::now();
        running.stop().await.unwrap();
        let took = begun.elapsed();
        let recorded = (kept.count("dispatched"), kept.count("acked"));
        if recorded == (10, 10) {
            return;
        }
        let cut_off = tries_left > 0 && took >= Duration::from_secs(1);
        assert!(cut_off, "{recorded:?} of 10 each, after {took:?}");
    }
}

/// The one before goes when the next one has started already, stopped or not.
async fn a_run_in_the_place_of_another_keeps_its_recorders(db: &Db) {
    for stopped in [true, false] {
        let told = async || {
            let (kept, queue) = (Kept::default(), unique("anew"));
            let app = db.app().only([free("it", "q").0]).recorder(kept.recorder());
            let mut running = app.start().await.unwrap();
            if stopped {
                running.stop().await.unwrap();
            }
            running = app.start().await.unwrap();
            db.publish(&queue, 7).await;
            running.stop().await.unwrap();
            kept.events().iter().any(
                |event| matches!(event, Event::Published { queue: told, .. } if **told == *queue),
            )
        };
        // An app of another test may be the last that has started.
        eventually("what belongs to no app is told to the one that runs", told).await;
    }
}

/// Without a stop.
async fn a_recorder_goes_with_an_app_that_is_dropped(db: &Db) {
    let held = Arc::new(());
    let of_recorder = Arc::clone(&held);
    let app = db.app().only([free("it", "q").0]).recorder(move |_: &Event| {
        let _ = &of_recorder;
    });
    let running = app.start().await.unwrap();
    drop(running);
    drop(app);
    eventually("nobody has it any more", async || Arc::strong_count(&held) == 1).await;
}
