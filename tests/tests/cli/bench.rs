//! `bench`.

use std::process::Stdio;

use outbox_tests::db::Db;
use outbox_tests::wait::{eventually, soon};
use tokio::process::Command;

use crate::program::{command, ended, json, run, shop};

async fn messages_go_through_and_none_is_left(db: &Db) {
    db.publish("orders", 1).await;
    let measured = json(db, &["bench", "--messages", "700", "--payload", "50", "--yes"]).await;
    for rate in ["published_per_second", "handled_per_second", "commit_median_seconds"] {
        assert!(measured[rate].as_f64().unwrap() > 0.0, "{measured}");
    }
    assert_eq!(measured["left_and_deleted"], 0, "{measured}");
    assert_eq!((db.rows().await, db.letters().await), (1, 0));
    let told = run(db, &["bench", "--messages", "1", "--yes"]).await.good();
    assert!(told.contains("handled") && told.contains("messages a second"), "{told}");
    assert!(told.contains("not known for so few messages"), "{told}");
}

async fn handlers_of_the_program_do_not_run(db: &Db) {
    db.send(outbox::Outgoing::new("orders", &serde_json::json!({ "id": 1, "amount": 1 }))).await;
    let told = ended(shop(db, &["bench", "--messages", "3000", "--yes"])).await.good();
    assert!(!told.contains("confirmed"), "{told}");
    assert_eq!(db.rows().await, 1);
}

async fn nothing_is_done_without_consent(db: &Db) {
    let ran = run(db, &["bench"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("10000 messages of 100 bytes go through the table outbox"), "{ran:?}");
    assert!(ran.err.contains("--yes"), "{ran:?}");
    // Ids tell of rows that are gone, too.
    assert_eq!(db.publish("orders", 1).await, 1);
}

async fn one_that_cannot_begin_speaks_of_no_messages_that_are_left(db: &Db) {
    db.exec("DROP TABLE outbox").await;
    let ran = run(db, &["bench", "--messages", "1", "--yes"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(!ran.err.contains("may be left"), "{ran:?}");
}

async fn when_it_is_interrupted_nothing_is_left(db: &Db) {
    for signal in ["INT", "TERM", "HUP"] {
        let mut bench = command(db, &["bench", "--messages", "1000000", "--yes"]);
        let bench = bench.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        eventually("messages are published", async || db.rows().await > 1000).await;
        let id = bench.id().expect("it runs").to_string();
        let kill = Command::new("/bin/sh").args(["-c", &format!("kill -{signal} {id}")]).status();
        assert!(kill.await.unwrap().success());
        let output = soon("it ends", bench.wait_with_output()).await.unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("interrupted"), "{told}");
        assert_eq!(db.rows().await, 0);
    }
}

/// No run can be in the way of it.
async fn what_is_handled_meanwhile_is_deleted_too(db: &Db) {
    let mut load = outbox::ops::Load::default();
    load.messages = 300;
    let bench = db.app().bench(load).unwrap();
    bench.interrupt();
    assert!(bench.run().await.unwrap_err().to_string().contains("interrupted"));
    db.publish(bench.queue(), 1).await;
    assert_eq!(bench.clean_up().await.unwrap(), 1);
    assert_eq!(db.rows().await, 0);
}

async fn no_messages_take_no_time(db: &Db) {
    let mut load = outbox::ops::Load::default();
    load.messages = 0;
    let measured = soon("it ends", db.app().bench(load).unwrap().run()).await.unwrap();
    assert!(measured.handled_per_second == 0.0 && measured.commit_max.is_zero(), "{measured:?}");
}

/// It ends, and the app goes on.
async fn an_app_beside_it_is_as_healthy_as_before(db: &Db) {
    let app = db.app().only([outbox_tests::probe::free("it", "q").0]);
    let running = app.start().await.unwrap();
    let mut load = outbox::ops::Load::default();
    load.messages = 1;
    soon("it ends", app.bench(load).unwrap().run()).await.unwrap();
    let health = app.health();
    eventually("it is ready", async || health.check().await.ready).await;
    running.stop().await.unwrap();
}

/// Most messages of a small load are claimed at once, and none is handled before it is acked.
async fn what_is_handled_is_acked(db: &Db) {
    db.exec(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$",
    )
    .await;
    db.exec("CREATE TRIGGER slow BEFORE DELETE ON outbox EXECUTE FUNCTION slow()").await;
    let measured = json(db, &["bench", "--messages", "20", "--yes"]).await;
    assert!(measured["handled_per_second"].as_f64().unwrap() < 20.0, "{measured}");
}

async fn what_could_not_be_deleted_is_told_with_its_queue(db: &Db) {
    db.exec(
        "CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE 'not now'; END $$",
    )
    .await;
    db.exec("CREATE TRIGGER refused BEFORE DELETE ON outbox EXECUTE FUNCTION refused()").await;
    let mut bench = command(db, &["bench", "--messages", "10", "--yes", "--json"]);
    let bench = bench.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    eventually("messages are there", async || db.rows().await == 10).await;
    let id = bench.id().expect("it runs").to_string();
    let kill = Command::new("/bin/sh").args(["-c", &format!("kill -INT {id}")]).status();
    assert!(kill.await.unwrap().success());
    let ran = soon("it ends", bench.wait_with_output()).await.unwrap();
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(told.contains("may be left in the queue outbox_bench_"), "{ran:?}");
}

async fn what_others_have_locked_is_not_taken_for_deleted(db: &Db) {
    let bench = db.app().bench(outbox::ops::Load::default()).unwrap();
    db.publish(bench.queue(), 1).await;
    db.publish(bench.queue(), 2).await;
    let mut tx = db.pg().begin().await.unwrap();
    sqlx::query("SELECT id FROM outbox LIMIT 1 FOR UPDATE").fetch_all(&mut *tx).await.unwrap();
    let told = bench.clean_up().await.unwrap_err().to_string();
    assert!(told.contains("locked") && told.contains(bench.queue()), "{told}");
    assert_eq!(db.rows().await, 1);
    tx.rollback().await.unwrap();
    assert_eq!(bench.clean_up().await.unwrap(), 1);
    assert_eq!(db.rows().await, 0);
}

/// As with a role that may publish and not claim.
async fn a_measurement_of_which_nothing_is_handled_ends_and_says_why(db: &Db) {
    db.exec(
        "CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE insufficient_privilege; END $$",
    )
    .await;
    db.exec("CREATE TRIGGER refused BEFORE UPDATE ON outbox EXECUTE FUNCTION refused()").await;
    let ran = run(db, &["bench", "--messages", "200", "--yes"]).await;
    assert_eq!((ran.code, db.rows().await), (1, 0), "{ran:?}");
    assert!(ran.err.contains("no message was handled for 30s"), "{ran:?}");
}

outbox_tests::on_postgres!(
    a_measurement_of_which_nothing_is_handled_ends_and_says_why,
    what_could_not_be_deleted_is_told_with_its_queue,
    what_others_have_locked_is_not_taken_for_deleted,
    what_is_handled_is_acked,
);

outbox_tests::on_both!(
    an_app_beside_it_is_as_healthy_as_before,
    messages_go_through_and_none_is_left,
    handlers_of_the_program_do_not_run,
    nothing_is_done_without_consent,
    one_that_cannot_begin_speaks_of_no_messages_that_are_left,
    when_it_is_interrupted_nothing_is_left,
    what_is_handled_meanwhile_is_deleted_too,
    no_messages_take_no_time,
);
