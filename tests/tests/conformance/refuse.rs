//! Whatever would abort the caller's transaction is refused before the first
//! statement: the transaction goes on.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use outbox::testing::store::Store;
use outbox::{BoxError, Codec, Outgoing, PublishError, Publisher, TimerConflict};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::{Bench, Steps};

/// An encoding that nobody else reads.
struct Own;

impl Codec for Own {
    const CONTENT_TYPE: &'static str = "application/x-own";

    fn encode<T: Serialize + ?Sized>(_: &T) -> Result<Vec<u8>, BoxError> {
        Ok(vec![1])
    }

    fn decode<T: for<'a> Deserialize<'a>>(_: &[u8]) -> Result<T, BoxError> {
        Err("never read".into())
    }
}

/// Publishes the message in a transaction, expects that it is refused, and
/// publishes and commits another one in the same transaction.
async fn refused<B: Bench>(b: B, message: Outgoing, by: fn(&PublishError) -> bool) {
    refused_by(&b, b.publisher(), message, by).await;
}

async fn refused_by<B: Bench>(
    b: &B,
    publisher: &Publisher,
    message: Outgoing,
    by: fn(&PublishError) -> bool,
) {
    each_refused(b, publisher, [message], by).await;
}

async fn each_refused<B: Bench>(
    b: &B,
    publisher: &Publisher,
    messages: impl IntoIterator<Item = Outgoing>,
    by: fn(&PublishError) -> bool,
) {
    let mut tx = b.begin().await;
    for message in messages {
        let error = publisher.send(&mut tx, message).await.unwrap_err();
        assert!(by(&error), "{error:?}");
    }
    let id = b.publisher().publish(&mut tx, "fine", &1).await.unwrap().id();
    b.commit(tx).await;
    let rows = b.rows().await;
    assert_eq!(rows.iter().map(|row| Some(row.id)).collect::<Vec<_>>(), [id]);
}

async fn an_empty_queue_name<B: Bench>(b: B) {
    refused(b, Outgoing::new("", &1), |e| matches!(e, PublishError::EmptyName("queue"))).await;
}

async fn a_queue_name_of_256_characters<B: Bench>(b: B) {
    refused(b, Outgoing::new("é".repeat(256), &1), |e| {
        matches!(e, PublishError::LongName { what: "queue", chars: 256 })
    })
    .await;
}

async fn a_nul_in_a_queue_name<B: Bench>(b: B) {
    refused(b, Outgoing::new("a\0b", &1), |e| matches!(e, PublishError::Nul("queue"))).await;
}

async fn an_empty_timer_name<B: Bench>(b: B) {
    let message = Outgoing::new("q", &1).timer_id("");
    refused(b, message, |e| matches!(e, PublishError::EmptyName("timer"))).await;
}

async fn a_timer_name_of_256_characters<B: Bench>(b: B) {
    let message = Outgoing::new("q", &1).timer_id("t".repeat(256));
    refused(b, message, |e| matches!(e, PublishError::LongName { what: "timer", chars: 256 }))
        .await;
}

async fn a_nul_in_a_timer_name<B: Bench>(b: B) {
    let message = Outgoing::new("q", &1).timer_id("\0");
    refused(b, message, |e| matches!(e, PublishError::Nul("timer"))).await;
}

async fn a_payload_over_the_limit<B: Bench>(b: B) {
    let small = b.publisher().clone().max_payload(10);
    let message = Outgoing::raw("q", vec![7; 11]);
    refused_by(&b, &small, message, |e| {
        matches!(e, PublishError::PayloadTooLarge { bytes: 11, max: 10 })
    })
    .await;
}

async fn both_a_delay_and_a_time<B: Bench>(b: B) {
    let message = Outgoing::new("q", &1).delay(Duration::ZERO).at(SystemTime::UNIX_EPOCH);
    refused(b, message, |e| matches!(e, PublishError::DelayAndTime)).await;
}

async fn a_message_that_would_expire_before_it_is_due<B: Bench>(b: B) {
    let micros = Duration::from_micros;
    // The time is kept in milliseconds.
    let late = [(7_000_000, 7_000_000), (1_200, 1_500), (0, 999)].map(|(delay, limit)| {
        Outgoing::new("q", &1).delay(micros(delay)).expires_in(micros(limit))
    });
    let [same, within, at_once] = late;
    let undue: fn(&PublishError) -> bool = |e| matches!(e, PublishError::ExpiresUndue { .. });
    let mut tx = b.begin().await;
    for message in [within, at_once] {
        let error = b.publisher().send(&mut tx, message).await.unwrap_err();
        assert!(undue(&error), "{error:?}");
    }
    b.commit(tx).await;
    refused(b, same, undue).await;
}

async fn a_time_after_the_year_9999<B: Bench>(b: B) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800);
    let message = Outgoing::new("q", &1).at(time);
    refused(b, message, |e| matches!(e, PublishError::TimeOutOfRange(_))).await;
}

async fn a_content_type_that_contradicts_the_header<B: Bench>(b: B) {
    let message = Outgoing::raw("q", "x").content_type("text/plain").header("content-type", "a/b");
    refused(b, message, |e| matches!(e, PublishError::HeaderConflict("content-type"))).await;
}

async fn a_content_type_that_its_value_was_not_written_in<B: Bench>(b: B) {
    let encoded = |named| Outgoing::encoded::<Own>("q", &1).content_type(named);
    b.send(encoded("Application/X-Own; v=1")).await;
    let lease = b.take("q").await;
    b.store().ack(&[lease]).await.unwrap();
    let messages = [
        Outgoing::new("q", "text").content_type("text/plain"),
        encoded("application/json"),
        encoded("application/x-another"),
        encoded("text/plain"),
    ];
    each_refused(&b, b.publisher(), messages, |e| matches!(e, PublishError::ContentType { .. }))
        .await;
}

async fn a_header_that_calls_json_something_else<B: Bench>(b: B) {
    let kinds = [
        "text/plain",
        "Text/Html; charset=utf-8",
        "application/msgpack",
        "application/x-msgpack",
        "application/cbor",
    ];
    let messages = kinds.map(|kind| Outgoing::new("q", &1).header("content-type", kind));
    each_refused(&b, b.publisher(), messages, |e| {
        matches!(e, PublishError::HeaderConflict("content-type"))
    })
    .await;
}

/// It would be stored, and nobody could read it.
async fn a_header_of_ours_that_is_no_text<B: Bench>(b: B) {
    let message = || Outgoing::new("q", &1);
    let limit = Duration::from_secs(1);
    let messages = [
        message().header("content-type", Value::Null),
        Outgoing::raw("q", "x").header("content-type", json!(["text/plain"])),
        message().header("correlation_id", 5),
        message().header("correlation_id", 5).correlation_id("5"),
        message().header("outbox-expires-in", 1000),
        message().header("outbox-expires-in", 1000).expires_in(limit),
    ];
    each_refused(&b, b.publisher(), messages, |e| matches!(e, PublishError::HeaderNotText(_)))
        .await;
}

/// The message would never expire.
async fn a_time_to_start_in_that_is_no_number<B: Bench>(b: B) {
    let messages = ["5s", "-1", "", "1.5"]
        .map(|time| Outgoing::new("q", &1).header("outbox-expires-in", time));
    each_refused(&b, b.publisher(), messages, |e| matches!(e, PublishError::HeaderNotMillis(_)))
        .await;
}

async fn a_correlation_id_that_contradicts_the_header<B: Bench>(b: B) {
    let copied = [("correlation_id".to_owned(), Value::from("c"))].into_iter().collect();
    let messages = [
        Outgoing::new("q", &1).correlation_id("a").header("correlation_id", "b"),
        Outgoing::new("q", &1).correlation_id("a").headers(&copied).header("correlation_id", "b"),
    ];
    each_refused(&b, b.publisher(), messages, |e| {
        matches!(e, PublishError::HeaderConflict("correlation_id"))
    })
    .await;
}

async fn a_body_that_does_not_serialise<B: Bench>(b: B) {
    let message = Outgoing::new("q", &HashMap::from([((1, 2), 3)]));
    refused(b, message, |e| matches!(e, PublishError::Encode(_))).await;
}

async fn a_conflict_rule_without_a_timer<B: Bench>(b: B) {
    let message = Outgoing::new("q", &1).on_conflict(TimerConflict::Extend);
    refused(b, message, |e| matches!(e, PublishError::ConflictWithoutTimer)).await;
}

async fn a_nul_in_a_header_value<B: Bench>(b: B) {
    let message = Outgoing::new("q", &1).header("a", "x\0y");
    refused(b, message, |e| matches!(e, PublishError::Nul("header"))).await;
}

async fn a_nul_in_a_header_name<B: Bench>(b: B) {
    let message = Outgoing::new("q", &1).header("a\0", "x");
    refused(b, message, |e| matches!(e, PublishError::Nul("header"))).await;
}

async fn a_nul_deep_in_a_header<B: Bench>(b: B) {
    let message = Outgoing::new("q", &1).header("a", json!([{ "b": { "c\0": 1 } }]));
    refused(b, message, |e| matches!(e, PublishError::Nul("header"))).await;
}

async fn a_nul_in_a_correlation_id<B: Bench>(b: B) {
    let message = Outgoing::new("q", &1).correlation_id("\0");
    refused(b, message, |e| matches!(e, PublishError::Nul("header"))).await;
}

async fn refused_batch<B: Bench>(b: B, batch: Vec<Outgoing>, by: fn(&PublishError) -> bool) {
    let mut tx = b.begin().await;
    let error = b.publisher().publish_batch(&mut tx, batch).await.unwrap_err();
    assert!(by(&error), "{error:?}");
    let id = b.publisher().publish(&mut tx, "fine", &1).await.unwrap().id();
    b.commit(tx).await;
    assert_eq!(b.rows().await.iter().map(|row| Some(row.id)).collect::<Vec<_>>(), [id]);
}

async fn a_batch_with_one_bad_message<B: Bench>(b: B) {
    let batch = vec![Outgoing::new("q", &1), Outgoing::new("", &2), Outgoing::new("q", &3)];
    let second: fn(&PublishError) -> bool = |e| {
        let PublishError::OneOfMany { number: 2, count: 3, source } = e else { return false };
        e.to_string() == "message 2 of 3: the queue name is empty"
            && matches!(**source, PublishError::EmptyName("queue"))
    };
    refused_batch(b, batch, second).await;
}

async fn a_batch_that_names_a_timer_twice<B: Bench>(b: B) {
    let timer = |n: i32| Outgoing::new("q", &n).timer_id("t");
    refused_batch(b, vec![timer(1), timer(2)], |e| matches!(e, PublishError::TimerTwice { .. }))
        .await;
}

async fn a_cancel_of_a_name_that_cannot_exist<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    let publisher = b.publisher();
    assert!(publisher.cancel_timer(&mut tx, "q", "").await.is_err());
    assert!(publisher.cancel_timer(&mut tx, "a\0", "t").await.is_err());
    assert!(publisher.cancel_timer(&mut tx, "q", &"t".repeat(256)).await.is_err());
    let id = publisher.publish(&mut tx, "fine", &1).await.unwrap().id().unwrap();
    b.commit(tx).await;
    assert_eq!(b.claim_ids(&["fine"], 10).await, [id]);
}

cases! {
    an_empty_queue_name,
    a_queue_name_of_256_characters,
    a_nul_in_a_queue_name,
    an_empty_timer_name,
    a_timer_name_of_256_characters,
    a_nul_in_a_timer_name,
    a_payload_over_the_limit,
    both_a_delay_and_a_time,
    a_message_that_would_expire_before_it_is_due,
    a_time_after_the_year_9999,
    a_content_type_that_contradicts_the_header,
    a_content_type_that_its_value_was_not_written_in,
    a_header_that_calls_json_something_else,
    a_header_of_ours_that_is_no_text,
    a_time_to_start_in_that_is_no_number,
    a_correlation_id_that_contradicts_the_header,
    a_body_that_does_not_serialise,
    a_conflict_rule_without_a_timer,
    a_nul_in_a_header_value,
    a_nul_in_a_header_name,
    a_nul_deep_in_a_header,
    a_nul_in_a_correlation_id,
    a_batch_with_one_bad_message,
    a_batch_that_names_a_timer_twice,
    a_cancel_of_a_name_that_cannot_exist,
}
