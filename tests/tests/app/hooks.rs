//! Hooks run where they are said to, and their failures are told.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::{App, Error};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::{Probe, free, gated};
use outbox_tests::wait::{begun, soon};
use tokio::sync::Semaphore;

on_both!(
    startup_runs_before_the_first_claim_and_shutdown_after_the_last_result,
    a_failing_startup_hook_stops_the_start_and_claims_nothing,
    a_startup_hook_that_panics_fails_the_start_as_any_other,
    a_failing_shutdown_hook_is_told_after_the_drain,
    every_shutdown_hook_runs_and_the_first_error_is_told,
    a_drain_that_took_too_long_is_told_whatever_the_hooks_say,
    a_stop_that_is_dropped_in_a_hook_goes_on_there_when_repeated,
);

type Log = Arc<Mutex<Vec<&'static str>>>;

fn noting(app: App, log: &Log) -> App {
    let [a, b, c] = [log; 3].map(Arc::clone);
    let note = |log: &Log, word| log.lock().unwrap().push(word);
    app.on_startup(move || {
        note(&a, "startup 1");
        async { Ok::<_, String>(()) }
    })
    .on_startup(move || {
        note(&b, "startup 2");
        async { Ok::<_, String>(()) }
    })
    .on_shutdown(move || {
        note(&c, "shutdown");
        async { Ok::<_, String>(()) }
    })
}

/// For longer than a claim takes.
async fn none_starts(probe: &Probe) -> bool {
    tokio::time::sleep(Duration::from_millis(300)).await;
    probe.more().await.is_empty()
}

async fn startup_runs_before_the_first_claim_and_shutdown_after_the_last_result(db: &Db) {
    let log = Log::default();
    let (subscriber, probe) = gated("it", "q");
    db.publish("q", 7).await;
    let app = noting(db.app().only([subscriber]), &log);
    let seen = probe.clone();
    let app = app.on_startup(move || {
        let seen = seen.clone();
        async move { if none_starts(&seen).await { Ok(()) } else { Err("a handler runs already") } }
    });
    let running = app.start().await.unwrap();
    probe.start().await;
    log.lock().unwrap().push("run");
    let stop = tokio::spawn(async move { running.stop().await });
    probe.let_end(1);
    stop.await.unwrap().unwrap();
    assert_eq!(probe.finished(), 1);
    assert_eq!(*log.lock().unwrap(), ["startup 1", "startup 2", "run", "shutdown"]);
    assert_eq!(db.rows().await, 0);
}

async fn a_failing_startup_hook_stops_the_start_and_claims_nothing(db: &Db) {
    let (subscriber, probe) = free("it", "q");
    db.publish("q", 7).await;
    let log = Log::default();
    let seen = probe.clone();
    let app = db.app().only([subscriber]).on_startup(move || {
        let seen = seen.clone();
        async move { Err(if none_starts(&seen).await { "no mail server" } else { "it runs" }) }
    });
    let error = noting(app, &log).start().await.err().unwrap();
    assert!(matches!(error, Error::Hook { hook: "startup", .. }), "{error}");
    assert!(error.to_string().contains("no mail server"));
    assert!(log.lock().unwrap().is_empty(), "later hooks are not run");
    assert_eq!((probe.more().await.len(), db.leased().await), (0, 0));
    if db.is_postgres() {
        outbox_tests::wait::eventually("no connection is left", async || {
            db.connections().await == 0
        })
        .await;
    }
}

/// A probe tells its platform to start the process again.
async fn a_startup_hook_that_panics_fails_the_start_as_any_other(db: &Db) {
    let app = db.app().only([free("it", "q").0]);
    let app =
        app.on_startup(|| async { if true { panic!("as told") } else { Ok::<_, String>(()) } });
    let health = app.health();
    assert!(health.check().await.live);
    let error = app.run_until(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.to_string(), "the startup hook failed: it panicked");
    let report = health.check().await;
    assert!(!report.live && report.reasons[0].contains("it panicked"), "{report:?}");
}

async fn a_failing_shutdown_hook_is_told_after_the_drain(db: &Db) {
    let (subscriber, probe) = free("it", "q");
    let app = db.app().only([subscriber]).on_shutdown(|| async { Err("disk full") });
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    probe.start().await;
    let error = running.stop().await.unwrap_err();
    assert!(matches!(error, Error::Hook { hook: "shutdown", .. }), "{error}");
    assert_eq!(db.rows().await, 0, "it was drained before");
    running.stop().await.unwrap();
}

async fn every_shutdown_hook_runs_and_the_first_error_is_told(db: &Db) {
    let log = Log::default();
    let app = db.app().only([free("it", "q").0]);
    let app = app.on_shutdown(|| async { Err("disk full") });
    let app =
        app.on_shutdown(|| async { if true { panic!("as told") } else { Ok::<_, String>(()) } });
    let running = noting(app, &log).start().await.unwrap();
    let error = running.stop().await.unwrap_err();
    assert!(error.to_string().contains("disk full"), "{error}");
    assert_eq!(*log.lock().unwrap(), ["startup 1", "startup 2", "shutdown"]);
}

async fn a_drain_that_took_too_long_is_told_whatever_the_hooks_say(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let app = db.app().only([subscriber]).drain_timeout(Duration::from_millis(50));
    let running = app.on_shutdown(|| async { Err("disk full") }).start().await.unwrap();
    db.publish("q", 7).await;
    probe.start().await;
    let error = running.stop().await.unwrap_err();
    assert!(matches!(error, Error::DrainTimeout(1)), "{error}");
}

async fn a_stop_that_is_dropped_in_a_hook_goes_on_there_when_repeated(db: &Db) {
    let (log, gate) = (Log::default(), Arc::new(Semaphore::new(0)));
    let (begins, waits) = (Arc::clone(&log), Arc::clone(&gate));
    let slow = move || {
        begins.lock().unwrap().push("slow begins");
        let (log, gate) = (Arc::clone(&begins), Arc::clone(&waits));
        async move {
            gate.acquire().await.map_err(|_| "closed")?.forget();
            log.lock().unwrap().push("slow ends");
            Ok::<_, &str>(())
        }
    };
    let (subscriber, probe) = gated("it", "q");
    let app = db.app().only([subscriber]).drain_timeout(Duration::from_millis(50));
    let running = noting(app.on_shutdown(slow), &log).start().await.unwrap();
    log.lock().unwrap().clear();
    db.publish("q", 7).await;
    probe.start().await;
    {
        let mut stop = pin!(running.stop());
        soon("the hook begins", async {
            while log.lock().unwrap().is_empty() {
                begun("stop", stop.as_mut()).await;
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    gate.add_permits(1);
    let error = soon("stop", running.stop()).await.unwrap_err();
    assert!(matches!(error, Error::DrainTimeout(1)), "{error}");
    assert_eq!(*log.lock().unwrap(), ["slow begins", "slow ends", "shutdown"]);
    running.stop().await.unwrap();
}
