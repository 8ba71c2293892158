//! A drain claims no more, finishes what runs, and gives back the rest.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use outbox::{AckPolicy, Context, Error, Next, Outgoing, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::probe::{free, gated, with_result};
use outbox_tests::wait::{begun, eventually, soon};
use outbox_tests::{capture, on_both};
use tokio::sync::Notify;

use super::*;

on_both!(
    a_stopping_app_claims_no_more,
    running_handlers_finish_and_every_result_is_written,
    unstarted_rows_are_another_apps_at_once_and_uncounted,
    a_handler_that_takes_too_long_is_dropped_and_its_row_comes_back,
    what_layers_have_answered_in_a_batch_stands_when_a_drain_drops_the_rest,
    a_word_under_manual_stands_when_a_drain_drops_its_handler,
    a_drain_that_is_called_again_tells_what_it_gave_up_before,
    every_stop_waits_for_the_drain,
    a_drain_may_wait_for_ever,
    run_until_ends_with_its_future_and_drains,
);

async fn a_stopping_app_claims_no_more(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let app = db.app().only([subscriber]).drain_timeout(HOUR);
    let running = app.start().await.unwrap();
    db.publish("q", 0).await;
    probe.start().await;
    let mut stop = pin!(running.stop());
    begun("stop", stop.as_mut()).await;
    for n in 1..=20 {
        db.publish("q", n).await;
    }
    probe.let_end(1);
    soon("stop", stop).await.unwrap();
    assert!(probe.more().await.is_empty());
    assert_eq!((db.rows().await, db.leased().await, db.deliveries().await), (20, 0, 0));
}

async fn running_handlers_finish_and_every_result_is_written(db: &Db) {
    let (subscriber, probe) =
        with_result("it", "q", |run| if run.n == 1 { Err("no".into()) } else { Ok(()) });
    let retried = subscriber.retry(outbox::retry::Constant::new(HOUR));
    let (rejects, other) = with_result("rejects", "rejected", |_| Err("no".into()));
    let rejects = rejects.ack(AckPolicy::RejectOnError);
    let running = db.app().only([retried, rejects]).start().await.unwrap();
    for n in 0..3 {
        db.publish("q", n).await;
    }
    db.publish("rejected", 3).await;
    probe.starts(3).await;
    other.start().await;
    let mut stop = pin!(running.stop());
    begun("stop", stop.as_mut()).await;
    probe.let_end(3);
    other.let_end(1);
    soon("stop", stop).await.unwrap();
    assert_eq!((probe.finished(), other.finished()), (3, 1));
    assert_eq!((db.rows().await, db.leased().await, db.letters().await), (1, 0, 1));
    assert_eq!(db.int("SELECT attempts_count FROM outbox").await, 1);
}

async fn unstarted_rows_are_another_apps_at_once_and_uncounted(db: &Db) {
    for n in 0..5 {
        db.publish("q", n).await;
    }
    let (subscriber, probe) = gated("it", "q");
    let one = db.app().only([subscriber.max_workers(1)]).drain_timeout(HOUR);
    let one = one.start().await.unwrap();
    assert_eq!(probe.start().await.n, 0);
    eventually("all are claimed", async || db.leased().await == 5).await;
    let mut stop = pin!(one.stop());
    begun("stop", stop.as_mut()).await;
    eventually("four are given back", async || db.leased().await == 1).await;
    let (subscriber, other) = free("it", "q");
    let two = db.app().only([subscriber]).start().await.unwrap();
    for run in other.starts(4).await {
        assert_eq!((run.deliveries, run.attempts), (1, 0));
    }
    probe.let_end(1);
    soon("stop", stop).await.unwrap();
    assert_eq!((probe.finished(), probe.more().await.len()), (1, 0));
    two.stop().await.unwrap();
    assert_eq!((db.rows().await, other.more().await.len()), (0, 0));
}

async fn a_handler_that_takes_too_long_is_dropped_and_its_row_comes_back(db: &Db) {
    capture::start();
    // An odd number, by which its event is found again.
    let limit = Duration::from_micros(50_000 + u64::from(std::process::id() % 1000) * 10)
        + Duration::from_micros(u64::from(db.is_postgres()));
    let queue = outbox_tests::backend::unique("q");
    let (subscriber, probe) = gated("it", &queue);
    let app = db.app().only([subscriber]).drain_timeout(limit);
    let running = app.start().await.unwrap();
    db.publish(&queue, 7).await;
    let run = probe.start().await;
    let error = soon("stop", running.stop()).await.unwrap_err();
    assert!(matches!(error, Error::DrainTimeout(1)), "{error}");
    assert_eq!((probe.finished(), probe.dropped()), (0, 1));
    assert!(run.context.cancelled().is_cancelled());
    let seconds = limit.as_secs_f64().to_string();
    let told = capture::count(|line| {
        line.event() == Some("drain_timeout")
            && line.get("drain_timeout_seconds") == Some(&seconds)
            && line.get("handlers") == Some("1")
    });
    assert_eq!(told, 1);
    let closed = capture::names(&queue);
    assert_eq!(closed.iter().filter(|name| *name == "dispatch_abandoned").count(), 1, "{closed:?}");
    assert_eq!((db.rows().await, db.leased().await), (1, 0));

    let running = app.start().await.unwrap();
    let again = probe.start().await;
    assert_eq!((again.id, again.deliveries, again.attempts), (run.id, 2, 0));
    probe.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
}

async fn what_layers_have_answered_in_a_batch_stands_when_a_drain_drops_the_rest(db: &Db) {
    let (waits, first) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(true)));
    let waiting = Arc::clone(&waits);
    let slow = move |ctx: Context, next: Next| {
        let (waiting, first) = (Arc::clone(&waiting), Arc::clone(&first));
        async move {
            let n: i64 = ctx.decode()?;
            let result = next.run(ctx).await;
            if n == 2 && first.swap(false, Ordering::SeqCst) {
                waiting.notify_one();
                pending::<()>().await;
            }
            result
        }
    };
    let all = Subscriber::batches("it", "q", 3, |_: Vec<Context>| async {}).layer(slow);
    let app = db.app().only([all]).drain_timeout(Duration::from_millis(50));
    let sent = db.send_all((1..=3).map(|n: i64| Outgoing::new("q", &n))).await;
    let running = app.start().await.unwrap();
    soon("the second one waits", waits.notified()).await;
    let error = soon("stop", running.stop()).await.unwrap_err();
    assert!(matches!(error, Error::DrainTimeout(3)), "{error}");
    assert_eq!((db.rows().await, db.leased().await), (1, 0));
    assert_eq!(Some(db.int("SELECT id FROM outbox").await), sent[1].id());
    let running = app.start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
}

/// It only cleans up.
async fn a_word_under_manual_stands_when_a_drain_drops_its_handler(db: &Db) {
    let said = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&said);
    let manual = Subscriber::new("it", "q", move |ctx: Context| {
        match ctx.decode::<i64>().unwrap() {
            1 => assert!(ctx.ack()),
            2 => assert!(ctx.reject("no")),
            _ => {}
        }
        count.fetch_add(1, Ordering::SeqCst);
        pending::<()>()
    });
    let app = db.app().only([manual.ack(AckPolicy::Manual)]);
    let running = app.drain_timeout(Duration::from_millis(50)).start().await.unwrap();
    let sent = db.send_all((1..=3).map(|n: i64| Outgoing::new("q", &n))).await;
    eventually("all run", async || said.load(Ordering::SeqCst) == 3).await;
    let error = soon("stop", running.stop()).await.unwrap_err();
    assert!(matches!(error, Error::DrainTimeout(3)), "{error}");
    assert_eq!((db.rows().await, db.leased().await, db.letters().await), (1, 0, 1));
    assert_eq!(Some(db.int("SELECT id FROM outbox").await), sent[2].id(), "it said nothing");
    assert_eq!(Some(db.int("SELECT original_id FROM outbox_dlq").await), sent[1].id());
}

async fn a_drain_that_is_called_again_tells_what_it_gave_up_before(db: &Db) {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (wait, started) = (std::sync::Mutex::new(wait), std::sync::Arc::new(Notify::new()));
    let starts = std::sync::Arc::clone(&started);
    // It cannot be dropped before it is let go.
    let blocks = Subscriber::new("blocks", "q", move |_: Context| {
        starts.notify_one();
        let _ = wait.lock().unwrap().recv();
        async {}
    });
    let app = db.app().only([blocks]).drain_timeout(SECOND / 20);
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    soon("it starts", started.notified()).await;
    let first = tokio::time::timeout(3 * SECOND, running.stop()).await;
    assert!(first.is_err(), "it waits for the handler");
    go.send(()).unwrap();
    let error = soon("stop", running.stop()).await.unwrap_err();
    assert!(matches!(error, Error::DrainTimeout(1)), "{error}");
}

async fn every_stop_waits_for_the_drain(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    db.publish("q", 7).await;
    probe.start().await;
    let (mut one, mut two) = (pin!(running.stop()), pin!(running.stop()));
    begun("the first stop", one.as_mut()).await;
    begun("the second stop", two.as_mut()).await;
    probe.let_end(1);
    let (one, two) = soon("both stops", async { tokio::join!(one, two) }).await;
    assert!(one.is_ok() && two.is_ok());
    assert_eq!((probe.finished(), db.rows().await), (1, 0));
}

async fn a_drain_may_wait_for_ever(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let app = db.app().only([subscriber]).drain_timeout(Duration::MAX);
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    probe.start().await;
    let mut stop = pin!(running.stop());
    begun("stop", stop.as_mut()).await;
    probe.let_end(1);
    soon("stop", stop).await.unwrap();
}

async fn run_until_ends_with_its_future_and_drains(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    db.publish("q", 7).await;
    let end = async {
        probe.start().await;
        probe.let_end(1);
    };
    soon("run_until", db.app().only([subscriber]).run_until(end)).await.unwrap();
    assert_eq!((probe.finished(), db.rows().await), (1, 0));
}
