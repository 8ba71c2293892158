//! The same through the tables of PostgreSQL and SQLite.

use std::time::Duration;

use opentelemetry::trace::Status;
use outbox::{State, subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::gated;
use outbox_tests::wait::soon;
use tokio::sync::mpsc;

use super::*;

on_both!(a_trace_goes_through_the_table_and_the_handlers, a_run_that_is_cut_off_says_so,);

#[subscriber("databases: first", publish = "databases: second")]
async fn first(n: i64) -> i64 {
    n
}

#[subscriber("databases: second")]
fn second(_: i64, State(done): State<mpsc::UnboundedSender<()>>) {
    done.send(()).unwrap();
}

async fn a_trace_goes_through_the_table_and_the_handlers(db: &Db) {
    let (done, mut ended) = mpsc::unbounded_channel::<()>();
    let app = db.app().only([first::subscriber(), second::subscriber()]).state(done);
    let running = app.start().await.unwrap();
    let (_, here) = request(db.publish("databases: first", 7)).await;
    soon("the second ends", ended.recv()).await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    let first = only(here.trace_id(), "process databases: first");
    assert_eq!(publisher_of(&first), here.span_id());
    let second = only(here.trace_id(), "process databases: second");
    assert_eq!(publisher_of(&second), first.span_context.span_id());
}

async fn a_run_that_is_cut_off_says_so(db: &Db) {
    let (subscriber, probe) = gated("endless", "databases: endless");
    let app = db.app().only([subscriber]).drain_timeout(Duration::from_millis(50));
    let running = app.start().await.unwrap();
    let (_, here) = request(db.publish("databases: endless", 7)).await;
    probe.starts(1).await;
    running.stop().await.unwrap_err();
    let run = only(here.trace_id(), "process databases: endless");
    assert_eq!(run.status, Status::error(""));
    assert_eq!(attribute(&run, "error.type"), Some("cancelled".into()));
}
