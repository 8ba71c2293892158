//! A terminal failure and its dead letter: both or neither.

use std::time::Duration;

use outbox::testing::store::{Death, Lease, Store};
use outbox::{FailureReason, Outgoing};

use crate::bench::{Bench, Postgres, RawRow, SqlBench as _, Steps, TTL, about, death, retry};

async fn bury<B: Bench>(b: &B, lease: Lease) {
    assert_eq!(b.store().bury(&[death(lease)]).await.unwrap(), [true]);
}

async fn a_dead_letter_is_the_message_verbatim<B: Bench>(b: B) {
    let message = Outgoing::raw("q", (0..=255).collect::<Vec<u8>>());
    let message = message.timer_id("t").header("é", "\"\\").header("n", 7);
    let id = b.send(message).await.id().unwrap();
    for _ in 0..2 {
        let lease = b.take("q").await;
        b.store().retry(&[retry(lease, Duration::ZERO)]).await.unwrap();
    }
    let lease = b.take("q").await;
    let row: RawRow = b.row(id).await;
    bury(&b, lease).await;
    b.assert_empty().await;
    let letters = b.letters().await;
    assert_eq!(letters.len(), 1);
    let letter = letters[0].clone();
    assert_eq!((letter.original_id, letter.queue), (id, row.queue));
    assert_eq!((letter.payload, letter.headers), (row.payload, row.headers));
    assert_eq!((letter.created, letter.timer_id), (row.created, row.timer_id));
    assert_eq!(letter.deliveries, 3);
}

async fn a_dead_letter_knows_when_it_failed<B: Bench>(b: B) {
    b.put("q").await;
    b.age(TTL).await;
    let lease = b.take("q").await;
    bury(&b, lease).await;
    let letter = b.letters().await.remove(0);
    about(b.now().await - letter.failed, Duration::ZERO);
    about(b.now().await - letter.created, TTL);
}

async fn a_dead_letter_tells_why<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    let death = Death {
        lease,
        reason: FailureReason::Rejected,
        error_kind: Some("Kind".into()),
        last_exception: Some("exception".into()),
        note: Some("note".into()),
        fingerprint: Some("0011223344556677".into()),
    };
    b.store().bury(&[death]).await.unwrap();
    let letter = b.letters().await.remove(0);
    assert_eq!(letter.reason, "rejected");
    assert_eq!(letter.kind.as_deref(), Some("Kind"));
    assert_eq!(letter.exception.as_deref(), Some("exception"));
    assert_eq!(letter.note.as_deref(), Some("note"));
    assert_eq!(letter.fingerprint.as_deref(), Some("0011223344556677"));
}

async fn every_reason_has_its_text<B: Bench>(b: B) {
    let reasons =
        [FailureReason::MaxDeliveries, FailureReason::RetryTerminal, FailureReason::Rejected];
    b.put_many("q", 3).await;
    let leases = b.take_many("q", 3).await;
    let deaths = leases.into_iter().zip(reasons);
    let deaths: Vec<_> = deaths.map(|(lease, reason)| Death { reason, ..death(lease) }).collect();
    assert_eq!(b.store().bury(&deaths).await.unwrap(), [true; 3]);
    let texts: Vec<_> = b.letters().await.into_iter().map(|letter| letter.reason).collect();
    assert_eq!(texts, ["max_deliveries", "retry_terminal", "rejected"]);
}

async fn what_is_not_said_is_not_stored<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    let silent = Death { error_kind: None, last_exception: None, note: None, ..death(lease) };
    b.store().bury(&[silent]).await.unwrap();
    let letter = b.letters().await.remove(0);
    assert_eq!((letter.kind, letter.exception, letter.note), (None, None, None));
    assert_eq!(letter.fingerprint, None);
    assert_eq!(letter.timer_id, None);
}

async fn unicode_errors_are_kept<B: Bench>(b: B) {
    b.put("q").await;
    let text = "日本 \u{1f980} ␀ '\"\\ $1 \u{1}";
    let lease = b.take("q").await;
    let death = Death {
        error_kind: Some("é".repeat(255).into()),
        last_exception: Some(text.into()),
        note: Some(text.into()),
        ..death(lease)
    };
    b.store().bury(&[death]).await.unwrap();
    let letter = b.letters().await.remove(0);
    assert_eq!(letter.exception.as_deref(), Some(text));
    assert_eq!(letter.note.as_deref(), Some(text));
    assert_eq!(letter.kind, Some("é".repeat(255)));
}

async fn eight_kibibytes_of_error_are_kept<B: Bench>(b: B) {
    b.put("q").await;
    let text = "é".repeat(4096);
    let lease = b.take("q").await;
    let death = Death { last_exception: Some((&text).into()), ..death(lease) };
    b.store().bury(&[death]).await.unwrap();
    assert_eq!(b.letters().await[0].exception, Some(text));
}

async fn missing_headers_stay_missing<B: Bench>(b: B) {
    let id = b.put("q").await;
    b.set_headers(id, None).await;
    let lease = b.take("q").await;
    bury(&b, lease).await;
    assert_eq!(b.letters().await[0].headers, None);
}

async fn each_row_of_a_batch_has_its_own_letter<B: Bench>(b: B) {
    let ids = b.put_many("q", 3).await;
    let leases = b.take_many("q", 3).await;
    let batch =
        [2, 0, 1].map(|n| Death { note: Some(format!("note {n}").into()), ..death(leases[n]) });
    assert_eq!(b.store().bury(&batch).await.unwrap(), [true; 3]);
    let mut letters = b.letters().await;
    letters.sort_by_key(|letter| letter.original_id);
    assert_eq!(letters.len(), 3);
    for (n, (letter, id)) in letters.iter().zip(ids).enumerate() {
        assert_eq!((letter.original_id, letter.note.clone()), (id, Some(format!("note {n}"))));
    }
}

async fn a_lost_lease_leaves_no_letter<B: Bench>(b: B) {
    b.put("q").await;
    let lost = b.take("q").await;
    b.age(TTL).await;
    let held = b.take("q").await;
    assert_eq!(b.store().bury(&[death(lost)]).await.unwrap(), [false]);
    assert!(b.letters().await.is_empty());
    bury(&b, held).await;
    assert_eq!(b.letters().await.len(), 1);
}

async fn one_failure_is_one_letter<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    bury(&b, lease).await;
    assert_eq!(b.store().bury(&[death(lease)]).await.unwrap(), [false]);
    assert_eq!(b.letters().await.len(), 1);
}

async fn a_store_tells_whether_it_keeps_letters<B: Bench>(b: B) {
    assert!(b.store().keeps_dead_letters());
    assert!(!b.without_dlq().store().keeps_dead_letters());
}

async fn without_a_table_a_failed_row_is_deleted<B: Bench>(b: B) {
    b.put_many("q", 2).await;
    let without = b.without_dlq();
    let leases = without.take_many("q", 2).await;
    let refenced = crate::bench::refenced(leases[0]);
    let deaths = [death(refenced), death(leases[1])];
    assert_eq!(without.store().bury(&deaths).await.unwrap(), [false, true]);
    assert_eq!(b.rows().await.len(), 1);
    assert!(b.letters().await.is_empty());
}

/// A table that others made may have room for names which that of the letters has not.
async fn a_long_timer_name_keeps_no_letter_back(b: Postgres) {
    b.execute("ALTER TABLE outbox ALTER timer_id TYPE text").await;
    b.put("q").await;
    b.execute("UPDATE outbox SET timer_id = repeat('é', 300)").await;
    let lease = b.take("q").await;
    bury(&b, lease).await;
    assert_eq!(b.number("SELECT length(timer_id)::bigint FROM outbox_dlq").await, 255);
}

mod on_postgres {
    use super::*;

    cases! {
        postgres only, "SQLite knows no length of a text":
        a_long_timer_name_keeps_no_letter_back,
    }
}

cases! {
    a_dead_letter_is_the_message_verbatim,
    a_dead_letter_knows_when_it_failed,
    a_dead_letter_tells_why,
    every_reason_has_its_text,
    what_is_not_said_is_not_stored,
    unicode_errors_are_kept,
    eight_kibibytes_of_error_are_kept,
    missing_headers_stay_missing,
    each_row_of_a_batch_has_its_own_letter,
    a_lost_lease_leaves_no_letter,
    one_failure_is_one_letter,
    a_store_tells_whether_it_keeps_letters,
    without_a_table_a_failed_row_is_deleted,
}
