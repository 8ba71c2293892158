//! What the handlers cannot read, found without running any.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use outbox::ops::doctor::{Report, Severity};
use outbox::{Context, Outgoing, Subscriber, subscriber};
use outbox_tests::db::Db;
use outbox_tests::{on_both, on_postgres};
use serde::{Deserialize, Serialize};

use crate::{by, examine, limits, one};

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
    amount: i64,
}

static RAN: AtomicBool = AtomicBool::new(false);

#[subscriber("orders")]
async fn confirm(order: Order) {
    RAN.store(order.id + order.amount > 0, Ordering::SeqCst);
}

#[subscriber("clicks", batch = 10)]
async fn count(_: Vec<u64>) {
    RAN.store(true, Ordering::SeqCst);
}

#[subscriber("notes")]
async fn keep(_: &str) {}

#[subscriber("blobs")]
fn store(_: &[u8]) {}

/// A type whose decoding panics.
struct Fragile;

impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("on purpose")
    }
}

#[subscriber("fragile")]
async fn hold(_: Fragile) {}

async fn of(db: &Db) -> Report {
    let all = [
        confirm::subscriber(),
        count::subscriber(),
        keep::subscriber(),
        store::subscriber(),
        hold::subscriber(),
    ];
    examine(db.app().only(all), limits()).await
}

fn json(queue: &str, payload: &'static str) -> Outgoing {
    Outgoing::raw(queue, payload).content_type("application/json")
}

/// As a delivery that failed leaves it.
async fn bury(db: &Db, queue: &str, payload: &str, status: &str) {
    let payload = if db.is_postgres() {
        format!("convert_to('{payload}', 'UTF8')")
    } else {
        format!("CAST('{payload}' AS blob)")
    };
    let time = if db.is_postgres() { "now()" } else { "0" };
    db.exec(format!(
        "INSERT INTO outbox_dlq (original_id, queue, payload, deliveries_count, created_at, \
            failed_at, failure_reason, status) \
         VALUES (1, '{queue}', {payload}, 1, {time}, {time}, 'rejected', '{status}')"
    ))
    .await;
}

async fn rows_that_this_program_cannot_read_are_told_by_queue_and_reason(db: &Db) {
    for id in [10, 200, 3000] {
        db.send(Outgoing::new("orders", &serde_json::json!({ "id": id }))).await;
    }
    db.send(Outgoing::new("orders", &Order { id: 1, amount: 2 })).await;
    let report = of(db).await;
    let found = one(&report, "payloads", Severity::Error);
    let told = "3 rows of queue `orders` cannot be read by the subscriber `confirm` of this \
                program: the payload is not the expected JSON: missing field `amount` (ids 1, 2, 3)";
    assert_eq!(found.what, told);
    assert!(found.why.contains("do not deploy"));
    let check = report.checks.last().unwrap();
    assert_eq!(
        check.said.as_deref(),
        Some("1 of 4 rows can be read, 0 of 0 failed dead letters can be read")
    );
}

async fn no_handler_runs_and_nothing_is_written(db: &Db) {
    db.send(Outgoing::new("orders", &Order { id: 1, amount: 2 })).await;
    db.send(Outgoing::new("clicks", &7)).await;
    let report = of(db).await;
    assert_eq!(report.count(Severity::Error), 0, "{report:#?}");
    assert!(!RAN.load(Ordering::SeqCst));
    assert_eq!((db.rows().await, db.leased().await, db.deliveries().await), (2, 0, 0));
}

async fn every_kind_of_handler_is_tried(db: &Db) {
    let (wrong, right) = (b"\xc3\x28".as_slice(), b"fine".as_slice());
    for payload in [wrong, right] {
        for queue in ["notes", "blobs", "clicks", "orders"] {
            let message = Outgoing::raw(queue, payload.to_vec());
            db.send(message.content_type("text/plain")).await;
        }
    }
    let report = of(db).await;
    let refused = |queue: &str| {
        let told: Vec<_> = by(&report, "payloads")
            .into_iter()
            .filter(|one| one.what.contains(&format!("queue `{queue}`")))
            .map(|one| one.what.split(' ').next().unwrap().parse::<u32>().unwrap())
            .collect();
        told.iter().sum::<u32>()
    };
    let counts = ["notes", "blobs", "clicks", "orders"].map(refused);
    assert_eq!(counts, [1, 0, 2, 2], "{report:#?}");
}

async fn a_decoding_that_panics_is_a_finding(db: &Db) {
    db.send(json("fragile", "1")).await;
    db.send(json("orders", "{}")).await;
    let report = of(db).await;
    let found = by(&report, "payloads");
    assert_eq!(found.len(), 2, "{report:#?}");
    assert!(found[0].what.contains("its decoding panics"), "{found:#?}");
}

async fn failed_dead_letters_are_tried_and_those_done_with_are_not(db: &Db) {
    bury(db, "orders", "{}", "failed").await;
    bury(db, "orders", "[]", "resolved").await;
    bury(db, "orders", "{\"id\": 1, \"amount\": 2}", "failed").await;
    let report = of(db).await;
    let found = one(&report, "payloads", Severity::Warning);
    assert!(found.what.starts_with("1 failed dead letter of queue `orders`"), "{found:?}");
    assert!(found.what.ends_with("(ids 1)") && found.why.contains("replay"), "{found:?}");
}

async fn without_a_table_of_dead_letters_rows_are_tried(db: &Db) {
    db.exec("DROP TABLE outbox_dlq").await;
    db.send(json("orders", "{}")).await;
    let app = db.named(outbox::TableNames::default()).app().only([confirm::subscriber()]);
    let report = examine(app, limits()).await;
    one(&report, "payloads", Severity::Error);
}

/// As Python makes it.
async fn where_no_letter_tells_its_status_rows_are_tried(db: &Db) {
    for index in ["status", "open", "group"] {
        db.exec(format!("DROP INDEX outbox_dlq_{index}_idx")).await;
    }
    db.exec("ALTER TABLE outbox_dlq DROP COLUMN status").await;
    db.send(json("orders", "{}")).await;
    let app = db.named(outbox::TableNames::default()).app().only([confirm::subscriber()]);
    let report = examine(app, limits()).await;
    let found = one(&report, "payloads", Severity::Error);
    assert!(found.what.contains("cannot be read by the subscriber `confirm`"), "{found:#?}");
    let errors: Vec<_> =
        report.findings.iter().filter(|it| it.severity == Severity::Error).collect();
    assert_eq!(errors.len(), 1, "{errors:#?}");
}

async fn a_limit_and_what_it_leaves_out_are_told(db: &Db) {
    let many = (0..1203).map(|id| Outgoing::new("orders", &Order { id, amount: 1 }));
    db.send_all(many).await;
    db.send(json("orders", "{}")).await;
    let seen = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&seen);
    let doctor = db.app().only([confirm::subscriber()]).doctor().unwrap();
    let doctor = doctor.on_progress(move |done, of| {
        assert!(done <= of, "{done} of {of}");
        told.store(done, Ordering::SeqCst);
    });
    let report = doctor.clone().rows(1000).examine().await.unwrap();
    let note = one(&report, "payloads", Severity::Note);
    assert_eq!(note.what, "only the oldest 1000 of 1204 rows were tried");
    assert_eq!(seen.load(Ordering::SeqCst), 1000);
    let report = doctor.examine().await.unwrap();
    one(&report, "payloads", Severity::Error);
    assert_eq!(seen.load(Ordering::SeqCst), 1204);
}

async fn rows_that_nobody_reads_use_up_no_limit_and_are_not_told_as_readable(db: &Db) {
    db.send_all((0..1200).map(|n| Outgoing::new("unread", &n))).await;
    for payload in ["{}", "{}", "{\"id\": 1, \"amount\": 2}", "{}"] {
        db.send(json("orders", payload)).await;
    }
    let doctor = db.app().only([confirm::subscriber()]).doctor().unwrap();
    let doctor = doctor.on_progress(|done, of| assert!(done <= of, "{done} of {of}"));
    for (limit, wrong, said) in [(3, "2 rows", "1 of 3 rows"), (9, "3 rows", "1 of 4 rows")] {
        let report = doctor.clone().rows(limit).examine().await.unwrap();
        let found = by(&report, "payloads");
        assert!(found[0].what.starts_with(wrong), "{found:?}");
        let check = report.checks.last().unwrap().said.as_deref().unwrap();
        assert!(check.starts_with(&format!("{said} can be read")), "{check}");
        assert_eq!(found.len() == 2, limit == 3, "something was left out: {found:?}");
    }
}

async fn a_handler_made_by_hand_is_tried_once_it_says_what_it_reads(db: &Db) {
    db.send(json("raw", "\"x\"")).await;
    let by_hand = || Subscriber::new("by_hand", "raw", |_: Context| async {});
    let report = examine(db.app().only([by_hand()]), limits()).await;
    let note = one(&report, "payloads", Severity::Note);
    assert!(note.what.contains("`by_hand`") && note.mend.contains(".decodes::<T>()"), "{note:?}");
    let report = examine(db.app().only([by_hand().decodes::<u64>()]), limits()).await;
    one(&report, "payloads", Severity::Error);
}

async fn headers_that_are_no_object_do_not_decode(db: &Db) {
    db.send(Outgoing::new("orders", &Order { id: 1, amount: 2 })).await;
    db.exec("UPDATE outbox SET headers = '[1]'").await;
    let report = of(db).await;
    one(&report, "payloads", Severity::Error);
}

/// SQLite reads such a table from its start for each page. Of pages of one size there would be 42.
#[tokio::test]
async fn many_rows_of_a_table_that_was_known_to_have_one_are_read_in_few_pages() {
    let db = Db::sqlite().await.unwrap();
    db.publish("clicks", 1).await;
    db.exec("ANALYZE").await;
    db.exec(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000) \
         INSERT INTO outbox (queue, payload) SELECT 'clicks', x'37' FROM n",
    )
    .await;
    let pages = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&pages);
    let doctor = db.app().only([count::subscriber()]).doctor().unwrap();
    let doctor = doctor.on_progress(move |_, _| {
        told.fetch_add(1, Ordering::SeqCst);
    });
    let report = doctor.examine().await.unwrap();
    assert_eq!(by(&report, "payloads").len(), 0, "{report:#?}");
    let check = report.checks.last().unwrap().said.as_deref().unwrap();
    assert!(check.starts_with("20001 of 20001 rows can be read"), "{check}");
    // Six of rows, and one of letters.
    assert_eq!(pages.load(Ordering::SeqCst), 7);
    db.close().await;
}

on_both!(
    rows_that_this_program_cannot_read_are_told_by_queue_and_reason,
    no_handler_runs_and_nothing_is_written,
    every_kind_of_handler_is_tried,
    a_decoding_that_panics_is_a_finding,
    failed_dead_letters_are_tried_and_those_done_with_are_not,
    without_a_table_of_dead_letters_rows_are_tried,
    a_limit_and_what_it_leaves_out_are_told,
    rows_that_nobody_reads_use_up_no_limit_and_are_not_told_as_readable,
    a_handler_made_by_hand_is_tried_once_it_says_what_it_reads,
    headers_that_are_no_object_do_not_decode,
);

on_postgres!(where_no_letter_tells_its_status_rows_are_tried);
