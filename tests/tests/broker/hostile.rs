//! Twenty payloads that nobody should have sent: each ends in exactly one dead
//! letter or one handled row, and the loop goes on.

use std::collections::BTreeMap;

use outbox::{Bytes, FailureReason, Outgoing, subscriber};

use super::*;

#[subscriber("hostile", retry = NoRetry)]
async fn picky(_: BTreeMap<String, f64>) {}

#[subscriber("open", retry = NoRetry)]
async fn open(_: serde_json::Value) {}

const JSON: Option<&str> = Some("application/json");
const TEXT: Option<&str> = Some("text/plain");

/// Payload, content type, and whether `picky` and `open` handle it.
fn payloads() -> Vec<(&'static str, Bytes, Option<&'static str>, bool, bool)> {
    let brackets = "[".repeat(200_000);
    let objects = r#"{"a":"#.repeat(200_000);
    let huge = format!(r#"{{"a": 1{}}}"#, " ".repeat((16 << 20) - 8));
    assert_eq!(huge.len(), 16 << 20);
    vec![
        ("empty", Bytes::new(), JSON, false, false),
        ("empty text", Bytes::new(), TEXT, false, true),
        ("no content type", Bytes::from_static(b"hello"), None, false, false),
        ("bad JSON", Bytes::from_static(b"{\"a\": }"), JSON, false, false),
        ("cut JSON", Bytes::from_static(b"{\"a\": 1"), JSON, false, false),
        ("trailing", Bytes::from_static(b"{\"a\": 1} x"), JSON, false, false),
        ("NUL byte", Bytes::from_static(b"\0"), JSON, false, false),
        ("NUL escape", Bytes::from_static(b"{\"a\\u0000\": 1}"), JSON, true, true),
        ("invalid UTF-8", Bytes::from_static(b"{\"\xff\": 1}"), JSON, false, false),
        ("invalid UTF-8 text", Bytes::from_static(b"\xc3\x28"), TEXT, false, false),
        ("200,000 brackets", brackets.into(), JSON, false, false),
        ("200,000 objects", objects.into(), JSON, false, false),
        ("16 MiB", huge.into(), JSON, true, true),
        ("duplicate keys", Bytes::from_static(b"{\"a\": 1, \"a\": 2}"), JSON, true, true),
        ("1e400", Bytes::from_static(b"{\"a\": 1e400}"), JSON, false, false),
        ("1e-400", Bytes::from_static(b"{\"a\": 1e-400}"), JSON, true, true),
        ("lone surrogate", Bytes::from_static(b"{\"\\ud800\": 1}"), JSON, false, false),
        ("BOM", Bytes::from_static(b"\xef\xbb\xbf{\"a\": 1}"), JSON, false, false),
        ("NaN", Bytes::from_static(b"{\"a\": NaN}"), JSON, false, false),
        ("a number", Bytes::from_static(b"123456789012345678901234567890"), JSON, false, true),
        ("wrong type", Bytes::from_static(b"{\"a\": \"b\"}"), JSON, false, true),
        ("unknown type", Bytes::from_static(b"{\"a\": 1}"), Some("\u{202e}\0x"), false, false),
    ]
}

async fn try_all(queue: &str, handled: impl Fn(bool, bool) -> bool) {
    let broker = TestBroker::with([picky::subscriber(), open::subscriber()]);
    let mut letters = 0;
    for (name, payload, kind, picky, open) in payloads() {
        let size = payload.len();
        let message = Outgoing::raw(queue, payload.clone());
        let message = match kind {
            Some(kind) => message.content_type(kind),
            None => message,
        };
        match broker.publish_with(message).await {
            Ok(_) => {}
            // A NUL in a header cannot be stored: refused before it is a row.
            Err(error) => {
                assert!(error.to_string().contains("NUL"), "{name}: {error}");
                continue;
            }
        }
        letters += usize::from(!handled(picky, open));
        assert!(broker.rows().is_empty(), "{name} is stuck");
        assert_eq!(broker.dlq_rows().len(), letters, "{name}");
        if !handled(picky, open) {
            let letter = broker.dlq_rows().pop().unwrap();
            assert_eq!(letter.failure_reason, FailureReason::RetryTerminal, "{name}");
            assert_eq!(letter.error_kind.as_deref(), Some("decode"), "{name}");
            assert!(letter.payload == payload, "{name} was kept byte for byte");
            assert!(letter.last_exception.unwrap().len() < 400, "{name}, {size} bytes");
        }
    }
    // The loop goes on.
    broker.publish(queue, &BTreeMap::from([("a", 1.0)])).await.unwrap();
    assert!(broker.rows().is_empty());
    assert_eq!(broker.dlq_rows().len(), letters);
}

#[tokio::test]
async fn each_ends_in_one_dead_letter_or_one_handled_row() {
    assert!(payloads().len() >= 20);
    try_all("hostile", |picky, _| picky).await;
}

#[tokio::test]
async fn a_handler_of_any_json_fares_no_worse() {
    try_all("open", |_, open| open).await;
}

#[tokio::test]
async fn more_than_sixteen_mib_is_refused_before_it_is_a_row() {
    let broker = TestBroker::with([open::subscriber()]);
    let message = Outgoing::raw("open", vec![b' '; (16 << 20) + 1]);
    assert!(broker.publish_with(message).await.unwrap_err().to_string().contains("16777217"));
    assert!(broker.rows().is_empty());
}
