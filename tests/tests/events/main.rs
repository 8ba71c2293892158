//! What is told of a delivery: when, how often, with which fields, and what never.

mod fields;
mod lost;
mod names;
mod outcomes;
mod publish;
mod secrets;
mod witness;

use std::time::Duration;

use outbox::{App, Subscriber};
use outbox_tests::backend::unique;
use outbox_tests::capture::{self, Line};
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use witness::Witness;

const HOUR: Duration = Duration::from_secs(3600);

/// The events that close a delivery.
const CLOSING: [&str; 6] =
    ["acked", "nacked_retried", "nacked_terminal", "snoozed", "lease_lost", "dispatch_abandoned"];

/// A queue of this test alone: the log is that of the whole process.
fn queue() -> String {
    capture::start();
    unique("told")
}

fn closings(queue: &str) -> Vec<Line> {
    let mut events = capture::events(queue);
    events.retain(|line| CLOSING.contains(&line.event().unwrap()));
    events
}

/// The events of a queue apart from those of publishing and claiming.
fn told(queue: &str) -> Vec<String> {
    let mut names = capture::names(queue);
    names.retain(|name| name != "fetched" && name != "published");
    names
}

/// Publishes one message, waits until its delivery is closed and stops. Says what
/// was told, and what the database held at that moment.
async fn one(db: &Db, app: App, subscriber: Subscriber, queue: &str) -> (Vec<String>, Witness) {
    let told = one_of(db, app, subscriber, queue).await;
    fields::check(queue);
    told
}

async fn one_of(db: &Db, app: App, subscriber: Subscriber, queue: &str) -> (Vec<String>, Witness) {
    let witness = Witness::of(db, queue);
    db.publish(queue, 7).await;
    let running = app.only([subscriber]).start().await.unwrap();
    eventually("it is closed", async || !closings(queue).is_empty()).await;
    running.stop().await.unwrap();
    (told(queue), witness)
}
