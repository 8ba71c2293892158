//! However a handler ends, its delivery is closed by the one event that says so,
//! after the write it tells of.

use std::time::Duration;

use outbox::retry::{Constant, NoRetry};
use outbox::{AckPolicy, Context, IntoOutcome, Outcome, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;

use super::witness::Row;
use super::{HOUR, closings, fields, one, one_of, queue, told};

on_both!(
    an_ack,
    an_ack_with_messages,
    an_error_that_is_retried,
    a_panic,
    a_timeout,
    a_payload_that_does_not_decode,
    an_error_without_a_retry,
    an_error_without_a_dead_letter_table,
    a_reject,
    a_snooze,
    too_many_deliveries,
    an_ack_before_the_run,
    no_word_under_manual,
    every_delivery_of_a_row_is_closed,
);

fn handler<F, R>(queue: &str, run: impl Fn(Context) -> F + Send + Sync + 'static) -> Subscriber
where
    F: Future<Output = R> + Send + 'static,
    R: IntoOutcome,
{
    Subscriber::new("it", queue, run).retry(Constant::new(HOUR).jitter(0.0))
}

const FAILED: Result<(), &str> = Err("no");

async fn an_ack(db: &Db) {
    let q = queue();
    let (told, saw) = one(db, db.app(), handler(&q, |_| async {}), &q).await;
    assert_eq!(told, ["dispatched", "acked"]);
    assert_eq!(saw.at("dispatched"), (Row::Leased, false));
    assert_eq!(saw.at("acked"), (Row::Gone, false));
}

async fn an_ack_with_messages(db: &Db) {
    let (q, next) = (queue(), queue());
    let queue = next.clone();
    let publishing = handler(&q, move |context| {
        let done = context.publisher().collect(outbox::Outgoing::new(&*queue, &1));
        async move { done }
    });
    let (told, saw) = one(db, db.app(), publishing, &q).await;
    assert_eq!(told, ["dispatched", "acked"]);
    assert_eq!(saw.at("acked"), (Row::Gone, false));
    assert_eq!(db.texts("SELECT queue FROM outbox").await, [next]);
}

/// A failure that is retried in an hour, and how its kind is told.
async fn is_retried(db: &Db, q: &str, subscriber: Subscriber, kind: &str) {
    let (told, saw) = one(db, db.app(), subscriber, q).await;
    assert_eq!(told, ["dispatched", "nacked_retried"]);
    assert_eq!(saw.at("nacked_retried"), (Row::Free, false));
    let closing = closings(q).remove(0);
    assert_eq!(closing.get("exception_type"), Some(kind));
    assert_eq!(closing.get("next_delay_seconds"), Some("3600.0"));
}

async fn an_error_that_is_retried(db: &Db) {
    let q = queue();
    is_retried(db, &q, handler(&q, |_| async { Err::<(), _>(std::fmt::Error) }), "fmt::Error")
        .await;
}

async fn a_panic(db: &Db) {
    let q = queue();
    is_retried(
        db,
        &q,
        handler(&q, |context| async move { assert!(context.id() < 0, "on purpose") }),
        "panic",
    )
    .await;
}

async fn a_timeout(db: &Db) {
    let q = queue();
    let endless = handler(&q, |_| std::future::pending::<()>());
    is_retried(db, &q, endless.timeout(Duration::from_millis(20)), "timeout").await;
}

async fn a_payload_that_does_not_decode(db: &Db) {
    let q = queue();
    let text = handler(&q, |context| async move { context.decode::<String>().map(drop) });
    is_retried(db, &q, text, "decode").await;
}

async fn an_error_without_a_retry(db: &Db) {
    let q = queue();
    let failing = handler(&q, |_| async { FAILED }).retry(NoRetry);
    let (told, saw) = one(db, db.app(), failing, &q).await;
    assert_eq!(told, ["dispatched", "nacked_terminal", "dlq_written"]);
    assert_eq!(saw.at("nacked_terminal"), (Row::Gone, true));
    assert_eq!(saw.at("dlq_written"), (Row::Gone, true));
    assert_eq!(closings(&q)[0].get("reason"), Some("retry_terminal"));
}

async fn an_error_without_a_dead_letter_table(db: &Db) {
    let q = queue();
    let failing = handler(&q, |_| async { FAILED }).retry(NoRetry);
    let app = db.named(outbox::TableNames::default()).app();
    let (told, saw) = one(db, app, failing, &q).await;
    assert_eq!(told, ["dispatched", "nacked_terminal"]);
    assert_eq!(saw.at("nacked_terminal"), (Row::Gone, false));
}

async fn a_reject(db: &Db) {
    let q = queue();
    let rejecting = handler(&q, |_| async { Outcome::reject("not ours") });
    let (told, saw) = one(db, db.app(), rejecting, &q).await;
    assert_eq!(told, ["dispatched", "nacked_terminal", "dlq_written"]);
    assert_eq!(saw.at("nacked_terminal"), (Row::Gone, true));
    let closing = closings(&q).remove(0);
    assert_eq!((closing.get("reason"), closing.get("exception_type")), (Some("rejected"), None));
}

async fn a_snooze(db: &Db) {
    let q = queue();
    let (told, saw) = one(db, db.app(), handler(&q, |_| async { Outcome::Snooze(HOUR) }), &q).await;
    assert_eq!(told, ["dispatched", "snoozed"]);
    assert_eq!(saw.at("snoozed"), (Row::Free, false));
}

/// Judged unrun, so nothing was dispatched.
async fn too_many_deliveries(db: &Db) {
    let q = queue();
    let id = db.publish(&q, 1).await;
    db.exec(format!("UPDATE outbox SET deliveries_count = 9, attempts_count = 1 WHERE id = {id}"))
        .await;
    let running = db.app().only([handler(&q, |_| async {}).max_deliveries(9)]).start().await;
    let running = running.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    fields::check(&q);
    assert_eq!(told(&q), ["nacked_terminal", "dlq_written"]);
    assert_eq!(closings(&q)[0].get("reason"), Some("max_deliveries"));
}

/// What becomes of the run afterwards is no outcome of the delivery.
async fn an_ack_before_the_run(db: &Db) {
    let q = queue();
    let failing = handler(&q, |_| async { FAILED }).ack(AckPolicy::AckFirst).retry(NoRetry);
    let (told, saw) = one_of(db, db.app(), failing, &q).await;
    fields::check_as(&q, true);
    assert_eq!(told, ["dispatched", "acked"]);
    assert_eq!(saw.at("acked"), (Row::Gone, false));
    assert_eq!(db.letters().await, 0);
}

async fn no_word_under_manual(db: &Db) {
    let q = queue();
    let silent = handler(&q, |_| async {}).ack(AckPolicy::Manual);
    let (told, saw) = one(db, db.app(), silent, &q).await;
    assert_eq!(told, ["dispatched", "nacked_terminal", "dlq_written"]);
    assert_eq!(saw.at("nacked_terminal"), (Row::Gone, true));
}

async fn every_delivery_of_a_row_is_closed(db: &Db) {
    let q = queue();
    let thrice = Constant::new(Duration::from_millis(1)).max_attempts(3);
    let failing = handler(&q, |_| async { FAILED }).retry(thrice);
    let running = db.app().only([failing]).start().await.unwrap();
    db.publish(&q, 7).await;
    db.drained().await;
    running.stop().await.unwrap();
    fields::check(&q);
    let round = ["dispatched", "nacked_retried"];
    let last = ["dispatched", "nacked_terminal", "dlq_written"];
    assert_eq!(told(&q), [&round[..], &round, &last].concat());
}
