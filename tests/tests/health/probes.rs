//! The life of an app, from before its start to its end.

use outbox::Subscriber;
use outbox::health::Phase;
use outbox_tests::db::Db;
use outbox_tests::probe::{free, gated};
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};

use super::{Probes, SOON};

on_both!(
    an_app_is_ready_while_it_runs_and_only_then,
    a_check_may_take_as_long_as_it_takes,
    a_report_tells_of_everything_as_json,
    an_app_that_is_started_again_is_ready_again,
    an_app_that_was_dropped_has_stopped,
    tables_that_are_changed_under_it_make_it_unready,
    claims_that_are_refused_make_it_unready_until_they_succeed,
    claims_of_one_subscriber_that_are_refused_are_not_hidden_by_those_of_others,
    a_start_that_failed_is_told_and_one_that_nobody_repeats_is_dead,
);

on_postgres!(
    locked_dead_letters_keep_no_app_from_being_ready_and_none_from_starting,
    a_start_waits_for_a_table_that_is_locked_for_a_moment,
);

async fn an_app_is_ready_while_it_runs_and_only_then(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let app = db.app().only([subscriber]);
    let probes = Probes::of(app.health().limit(SOON)).await;
    assert_eq!((probes.live().await, probes.ready().await), (200, 503));
    let running = std::sync::Arc::new(app.start().await.unwrap());
    assert_eq!((probes.live().await, probes.ready().await), (200, 200));
    db.publish("q", 7).await;
    probe.start().await;
    let stopping = std::sync::Arc::clone(&running);
    let stop = tokio::spawn(async move { stopping.stop().await });
    eventually("it is stopping", async || probes.get("/ready").await.1["phase"] == "stopping")
        .await;
    assert_eq!((probes.live().await, probes.ready().await), (200, 503));
    probe.let_end(1);
    stop.await.unwrap().unwrap();
    let (status, body) = probes.get("/ready").await;
    assert_eq!((status, body["phase"].as_str()), (503, Some("stopped")));
    assert_eq!(body["reasons"][0], "the app has stopped");
    assert_eq!(probes.live().await, 200, "no new start is called for");
}

async fn a_check_may_take_as_long_as_it_takes(db: &Db) {
    let running = db.app().only([free("it", "q").0]).start().await.unwrap();
    let health = running.health().limit(std::time::Duration::MAX);
    eventually("it is ready", async || health.check().await.ready).await;
    running.stop().await.unwrap();
}

async fn a_report_tells_of_everything_as_json(db: &Db) {
    let running = db.app().only([free("it", "q").0.max_workers(3)]).start().await.unwrap();
    let probes = Probes::of(running.health().limit(SOON)).await;
    eventually("it listens and has claimed", async || {
        let (_, body) = probes.get("/ready").await;
        body["listener_up"] == true && body["last_claim_age_seconds"].is_number()
    })
    .await;
    let (status, body) = probes.get("/ready").await;
    assert_eq!((status, &body["ready"], &body["live"]), (200, &true.into(), &true.into()));
    assert!(body["last_claim_age_seconds"].as_f64().unwrap() < 60.0, "{body}");
    assert_eq!((&body["reasons"], &body["schema"]), (&[""; 0][..].into(), &[""; 0][..].into()));
    let pool = |key: &str| body["pool"][key].as_u64().unwrap();
    assert!((1..=pool("most")).contains(&pool("open")) && pool("idle") <= pool("open"), "{body}");
    let loops = body["loops"].as_array().unwrap();
    let mut names: Vec<_> = loops.iter().map(|one| one["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["claims", "leases", "settlers", "wakes", "watchdog", "workers"]);
    for one in loops {
        let tasks = match one["name"].as_str() {
            Some("workers") => 3,
            Some("settlers") => 5,
            _ => 1,
        };
        assert_eq!((&one["tasks"], &one["alive"]), (&tasks.into(), &tasks.into()), "{one}");
    }
    running.stop().await.unwrap();
}

async fn an_app_that_is_started_again_is_ready_again(db: &Db) {
    let app = db.app().only([free("it", "q").0]);
    let health = app.health().limit(SOON);
    for _ in 0..2 {
        let running = app.start().await.unwrap();
        assert!(health.check().await.ready);
        running.stop().await.unwrap();
        assert_eq!(health.check().await.phase, Phase::Stopped);
    }
}

async fn an_app_that_was_dropped_has_stopped(db: &Db) {
    let app = db.app().only([free("it", "q").0]);
    let running = app.start().await.unwrap();
    drop(running);
    let report = app.health().check().await;
    assert_eq!((report.phase, report.ready), (Phase::Stopped, false));
}

async fn tables_that_are_changed_under_it_make_it_unready(db: &Db) {
    let running = db.app().only([free("it", "q").0]).start().await.unwrap();
    let health = running.health().limit(SOON);
    eventually("it is ready", async || health.check().await.ready).await;
    db.exec("DROP TABLE outbox_dlq").await;
    assert!(health.check().await.ready, "the tables are looked at once a minute");
    running.forget_schema();
    let report = health.check().await;
    assert!(report.live && !report.ready);
    assert!(report.schema[0].contains("outbox_dlq"), "{report:?}");
    assert_eq!(report.reasons, report.schema);
    running.stop().await.unwrap();
}

async fn claims_that_are_refused_make_it_unready_until_they_succeed(db: &Db) {
    let running = db.app().only([free("it", "q").0]).start().await.unwrap();
    let health = running.health();
    eventually("it is ready", async || health.check().await.ready).await;
    db.exec("ALTER TABLE outbox RENAME TO elsewhere").await;
    eventually("it is not ready", async || {
        let report = health.check().await;
        assert!(report.live, "a new start would not help");
        report.claims_fail && !report.ready
    })
    .await;
    db.exec("ALTER TABLE elsewhere RENAME TO outbox").await;
    eventually("it is ready again", async || health.check().await.ready).await;
    running.stop().await.unwrap();
}

async fn claims_of_one_subscriber_that_are_refused_are_not_hidden_by_those_of_others(db: &Db) {
    let often = |it: Subscriber| it.min_poll(SOON / 100).max_poll(SOON / 100);
    // Not even where they have one name, as a fn of two modules has.
    let both = [free("it", "broken").0, free("it", "busy").0].map(often);
    db.publish("broken", 7).await;
    let refused = if db.is_postgres() {
        db.exec(
            "CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'not these'; END $$",
        )
        .await;
        "CREATE TRIGGER refused BEFORE UPDATE ON outbox FOR EACH ROW
         WHEN (NEW.queue = 'broken') EXECUTE FUNCTION refused()"
    } else {
        "CREATE TRIGGER refused BEFORE UPDATE ON outbox WHEN NEW.queue = 'broken'
         BEGIN SELECT RAISE(ABORT, 'not these'); END"
    };
    db.exec(refused).await;
    let running = db.app().only(both).start().await.unwrap();
    let health = running.health();
    let told = async || health.check().await.reasons.join("; ");
    eventually("it is told", async || told().await.contains("refused for it;")).await;
    for n in 0..20 {
        db.publish("busy", n).await;
        let reasons = told().await;
        assert!(reasons.contains("refused for it;"), "{n}: {reasons}");
    }
    db.exec(if db.is_postgres() {
        "DROP TRIGGER refused ON outbox"
    } else {
        "DROP TRIGGER refused"
    })
    .await;
    eventually("it is ready again", async || health.check().await.ready).await;
    running.stop().await.unwrap();
}

async fn a_start_that_failed_is_told_and_one_that_nobody_repeats_is_dead(db: &Db) {
    let app = db.app().only([free("it", "q").0]);
    let probes = Probes::of(app.health().limit(SOON)).await;
    db.exec("ALTER TABLE outbox RENAME TO elsewhere").await;
    assert!(app.start().await.is_err());
    let (status, body) = probes.get("/ready").await;
    assert_eq!((status, probes.live().await), (503, 200), "whoever started it may try again");
    let reason = body["reasons"][0].as_str().unwrap();
    assert!(reason.contains("the start has failed") && reason.contains("outbox"), "{body}");
    assert!(app.clone().run_until(std::future::pending::<()>()).await.is_err());
    assert_eq!(probes.live().await, 503);
    db.exec("ALTER TABLE elsewhere RENAME TO outbox").await;
    let running = app.start().await.unwrap();
    assert_eq!((probes.live().await, probes.ready().await), (200, 200));
    running.stop().await.unwrap();
}

/// As by `VACUUM FULL`, or `outbox dlq partition`, for as long as those take.
async fn locked_dead_letters_keep_no_app_from_being_ready_and_none_from_starting(db: &Db) {
    let (subscriber, probe) = free("it", "q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    let health = running.health().limit(SOON);
    eventually("it is ready", async || health.check().await.ready).await;
    let mut locking = db.pg().begin().await.unwrap();
    sqlx::query("LOCK TABLE outbox_dlq").execute(&mut *locking).await.unwrap();
    running.forget_schema();
    let report = health.check().await;
    assert!(report.ready && report.reasons.is_empty(), "{report:?}");
    let other = db.app().only([free("other", "other").0]).start().await.unwrap();
    db.publish("q", 1).await;
    assert_eq!(probe.start().await.n, 1);
    db.drained().await;
    // What keeps it from its work is told all the same.
    db.exec("ALTER TABLE outbox DROP COLUMN timer_id").await;
    other.forget_schema();
    let report = other.health().limit(SOON).check().await;
    assert!(!report.ready && report.schema[0].contains("timer_id"), "{report:?}");
    locking.rollback().await.unwrap();
    other.stop().await.unwrap();
    running.stop().await.unwrap();
}

async fn a_start_waits_for_a_table_that_is_locked_for_a_moment(db: &Db) {
    let case = async || {
        let mut migrating = db.pg().begin().await.unwrap();
        sqlx::query("LOCK TABLE outbox").execute(&mut *migrating).await.unwrap();
        let app = db.app().only([free("it", "q").0]);
        let ends = async {
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            migrating.rollback().await.unwrap();
        };
        let (started, ()) = tokio::join!(app.start(), ends);
        let Ok(running) = started else { return false };
        running.stop().await.is_ok()
    };
    // A start waits for five seconds.
    db.unless_stalled(std::time::Duration::from_secs(1), true, case).await;
}
