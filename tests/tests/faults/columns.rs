//! The tables get other columns while an app runs, as by a deploy of the application.

use outbox_tests::backend::unique;
use outbox_tests::capture;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::with_result;

use super::{OFTEN, publish};

on_postgres!(columns_that_come_and_go_under_a_running_app_fail_no_statement);

async fn columns_that_come_and_go_under_a_running_app_fail_no_statement(db: &Db) {
    capture::start();
    db.waits_for_locks().await;
    let name: &'static str = unique("columns").leak();
    let (subscriber, probe) =
        with_result(name, name, |run| if run.n % 3 == 0 { Err("no".into()) } else { Ok(()) });
    let subscriber = subscriber.retry(outbox::retry::Constant::new(OFTEN).max_attempts(2));
    probe.let_end(10_000);
    let app = db.app().only([subscriber.min_poll(OFTEN).max_poll(OFTEN)]);
    let running = app.start().await.unwrap();
    for n in 0..20 {
        publish(db, name, n * 6..n * 6 + 6).await;
        // Statements of every kind are prepared by now, and meet another table.
        for table in ["outbox", "outbox_dlq"] {
            db.exec(format!("ALTER TABLE {table} ADD COLUMN more_{n} text DEFAULT 'x'")).await;
            if n % 2 == 0 {
                db.exec(format!("ALTER TABLE {table} DROP COLUMN more_{n}")).await;
            }
        }
    }
    db.drained().await;
    assert_eq!((db.letters().await, probe.finished()), (40, 160));
    running.stop().await.unwrap();
    let complaints: Vec<_> = capture::lines()
        .into_iter()
        .filter(|line| {
            // Only claims say whose they are.
            line.get("error").is_some_and(|error| {
                line.get("subscriber") == Some(name) || error.contains("cached plan")
            })
        })
        .collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}
