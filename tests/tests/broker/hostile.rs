//! Twenty payloads that nobody should have sent: each ends in exactly one dead
//! letter or one handled row, and the loop goes on.

use std::collections::BTreeMap;

use outbox::{FailureReason, Outgoing, subscriber};
use outbox_tests::hostile::{Hostile, payloads};

use super::*;

#[subscriber("hostile", retry = NoRetry)]
async fn picky(_: BTreeMap<String, f64>) {}

#[subscriber("open", retry = NoRetry)]
async fn open(_: serde_json::Value) {}

async fn try_all(queue: &str, handled: impl Fn(bool, bool) -> bool) {
    let broker = TestBroker::with([picky::subscriber(), open::subscriber()]);
    let mut letters = 0;
    for hostile in payloads() {
        let Hostile { name, payload, map, any, .. } = &hostile;
        match broker.publish_with(hostile.message(queue)).await {
            Ok(_) => {}
            // A NUL in a header cannot be stored: refused before it is a row.
            Err(error) => {
                assert!(error.to_string().contains("NUL"), "{name}: {error}");
                continue;
            }
        }
        letters += usize::from(!handled(*map, *any));
        assert!(broker.rows().is_empty(), "{name} is stuck");
        assert_eq!(broker.dlq_rows().len(), letters, "{name}");
        if !handled(*map, *any) {
            let letter = broker.dlq_rows().pop().unwrap();
            assert_eq!(letter.failure_reason, FailureReason::RetryTerminal, "{name}");
            assert_eq!(letter.error_kind.as_deref(), Some("decode"), "{name}");
            assert!(letter.payload == *payload, "{name} was kept byte for byte");
            assert!(letter.last_exception.unwrap().len() < 400, "{name}, {} bytes", payload.len());
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
