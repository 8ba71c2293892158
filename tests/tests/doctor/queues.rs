//! Queues that nobody reads.

use outbox::ops::doctor::{Report, Severity};
use outbox::{AckPolicy, App, Context, Subscriber};
use outbox_tests::db::{Db, Pool};

use crate::{by, examine, limits, one};

async fn of(db: &Db) -> Report {
    let reader = Subscriber::new("confirm", "orders", |_: Context| async {}).decodes::<i64>();
    examine(db.app().only([reader]), limits()).await
}

async fn a_queue_that_nobody_reads_is_told(db: &Db) {
    db.publish("orders", 1).await;
    db.publish("invoices", 1).await;
    let report = of(db).await;
    let found = one(&report, "queues", Severity::Warning);
    assert!(found.what.contains("the queue `invoices`, which has 1 row"), "{found:?}");
    assert!(!found.what.contains("did you mean"), "{found:?}");
}

async fn a_name_that_is_nearly_that_of_a_queue_with_a_reader_is_a_likely_typo(db: &Db) {
    db.publish("order", 1).await;
    let report = of(db).await;
    let found = one(&report, "queues", Severity::Warning);
    assert!(found.what.contains("did you mean `orders`, which the subscriber `confirm` reads?"));
}

async fn queues_that_are_read_and_those_without_rows_are_no_finding(db: &Db) {
    db.publish("orders", 1).await;
    assert_eq!(by(&of(db).await, "queues").len(), 0);
    db.exec("DELETE FROM outbox").await;
    assert_eq!(by(&of(db).await, "queues").len(), 0);
}

async fn queues_of_readers_in_which_nothing_lies_are_one_note(db: &Db) {
    for queue in ["orders", "order lines"] {
        db.publish(queue, 1).await;
    }
    db.app().operator().unwrap().pause(&["mails"], None).await.unwrap();
    let reads = |queue: &'static str| Subscriber::new("any", queue, |_: Context| async {});
    let queues = ["orders", "order_lines", "clicks", "mails", "notes"];
    let report = examine(db.app().only(queues.map(reads)), limits()).await;
    let notes: Vec<_> = by(&report, "queues");
    let notes: Vec<_> = notes.iter().filter(|one| one.severity == Severity::Note).collect();
    assert_eq!(notes.len(), 1, "{report:#?}");
    assert!(notes[0].what.ends_with("2 queues of this program: `clicks` (any), `notes` (any)"));
}

async fn dead_letters_of_a_queue_that_nobody_reads_are_a_note(db: &Db) {
    db.publish("orders", 1).await;
    let id = db.publish("audits", 1).await;
    db.exec(format!(
        "INSERT INTO outbox_dlq (original_id, queue, payload, deliveries_count, created_at, \
            failed_at, failure_reason) \
         SELECT id, queue, payload, 1, created_at, created_at, 'rejected' FROM outbox \
         WHERE id = {id}"
    ))
    .await;
    db.exec(format!("DELETE FROM outbox WHERE id = {id}")).await;
    let report = of(db).await;
    let found = one(&report, "queues", Severity::Note);
    assert!(found.what.contains("`audits`, which has 1 failed dead letter"), "{found:?}");
}

/// A gate before a deploy is to say so.
async fn messages_that_are_deleted_when_they_fail_for_good_are_a_warning(db: &Db) {
    let lost = |ack| {
        let reader = Subscriber::new("confirm", "orders", |_: Context| async {}).ack(ack);
        let app = match &db.pool {
            Pool::Postgres(pool) => App::postgres(pool.clone()),
            Pool::Sqlite(pool) => App::sqlite(pool.clone()),
        };
        examine(app.only([reader]), limits())
    };
    let found = lost(AckPolicy::NackOnError).await;
    let found = one(&found, "queues", Severity::Warning);
    assert!(found.what.contains("`confirm`") && found.mend.contains("OUTBOX_DLQ_TABLE"));
    assert_eq!(by(&lost(AckPolicy::AckFirst).await, "queues").len(), 0, "it is settled before");
}

outbox_tests::on_both!(
    messages_that_are_deleted_when_they_fail_for_good_are_a_warning,
    a_queue_that_nobody_reads_is_told,
    a_name_that_is_nearly_that_of_a_queue_with_a_reader_is_a_likely_typo,
    queues_that_are_read_and_those_without_rows_are_no_finding,
    queues_of_readers_in_which_nothing_lies_are_one_note,
    dead_letters_of_a_queue_that_nobody_reads_are_a_note,
);
