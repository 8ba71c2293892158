//! Any bytes under any content type, read by several handlers of the real engine: handled,
//! or one dead letter with the bytes as they were.

use std::collections::BTreeMap;

use outbox::retry::NoRetry;
use outbox::testing::TestBroker;
use outbox::{Context, DecodeError, Outgoing, Subscriber};
use serde::Deserialize;

const KINDS: [Option<&str>; 5] = [
    None,
    Some("application/json"),
    Some("application/msgpack"),
    Some("application/cbor"),
    Some("text/plain; charset=utf-8"),
];

#[derive(Deserialize)]
#[expect(dead_code, reason = "they are read into")]
enum Shape {
    Unit,
    Number(i128),
    Pair(f32, Option<char>),
    Order { id: i64, note: Option<String>, lines: Vec<Shape> },
}

/// Reads the payload as every type in turn.
fn read(context: &Context) -> Result<(), DecodeError> {
    drop(context.decode::<Shape>());
    drop(context.decode::<BTreeMap<String, f64>>());
    drop(context.decode::<&str>());
    drop(context.decode::<(bool, Vec<u8>)>());
    drop(context.decode::<serde_json::Value>());
    context.decode::<Vec<Shape>>().map(drop)
}

/// The first byte chooses the content type.
pub fn target(data: &[u8]) {
    let Some((&kind, payload)) = data.split_first() else { return };
    let handler = |context: Context| std::future::ready(read(&context));
    let broker = TestBroker::with([Subscriber::new("reads", "q", handler).retry(NoRetry)]);
    let mut message = Outgoing::raw("q", payload.to_vec());
    if let Some(kind) = KINDS[usize::from(kind) % KINDS.len()] {
        message = message.content_type(kind);
    }
    super::run(broker.publish_with(message)).unwrap();
    assert!(broker.rows().is_empty());
    let letters = broker.dlq_rows();
    assert!(letters.len() <= 1 && letters.iter().all(|letter| letter.payload == payload));
}
