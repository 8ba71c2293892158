//! Payloads in other encodings than JSON.

use std::ffi::CString;
use std::sync::{Arc, Mutex};

use outbox::{
    BoxError, Cbor, Codec, Encoded, FailureReason, Headers, Json, MessagePack, Outgoing,
    PublishError, State, subscriber,
};
use serde::{Deserialize, Serialize};

use super::*;

type Seen = Arc<Mutex<Vec<String>>>;

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
    items: Vec<String>,
}

#[subscriber("codecs: order", retry = NoRetry)]
async fn order(order: Order, State(seen): State<Seen>) {
    seen.lock().unwrap().push(format!("{} {:?}", order.id, order.items));
}

#[subscriber("codecs: text", retry = NoRetry)]
async fn text(text: &str, State(seen): State<Seen>) {
    seen.lock().unwrap().push(text.to_owned());
}

#[subscriber("codecs: json", retry = NoRetry)]
async fn json(Json(order): Json<Order>, State(seen): State<Seen>) {
    seen.lock().unwrap().push(order.id.to_string());
}

/// JSON turned around.
struct Mirrored;

impl Codec for Mirrored {
    const CONTENT_TYPE: &'static str = "application/x-mirrored";

    fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, BoxError> {
        let mut bytes = serde_json::to_vec(value)?;
        bytes.reverse();
        Ok(bytes)
    }

    fn decode<T: for<'a> Deserialize<'a>>(payload: &[u8]) -> Result<T, BoxError> {
        let bytes: Vec<u8> = payload.iter().rev().copied().collect();
        Ok(serde_json::from_slice(&bytes)?)
    }
}

#[subscriber("codecs: mirrored", retry = NoRetry)]
async fn mirrored(number: Encoded<Mirrored, i64>, State(seen): State<Seen>) {
    seen.lock().unwrap().push(number.to_string());
}

/// A JSON of its own: no plain one.
struct Labelled;

impl Codec for Labelled {
    const CONTENT_TYPE: &'static str = "application/x-mirrored+json";

    fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, BoxError> {
        Mirrored::encode(value)
    }

    fn decode<T: for<'a> Deserialize<'a>>(payload: &[u8]) -> Result<T, BoxError> {
        Mirrored::decode(payload)
    }
}

#[subscriber("codecs: labelled", retry = NoRetry)]
async fn labelled(number: Encoded<Labelled, i64>, State(seen): State<Seen>) {
    seen.lock().unwrap().push(number.to_string());
}

#[subscriber("codecs: packed", retry = NoRetry)]
async fn packed(order: Encoded<MessagePack, Order>, State(seen): State<Seen>) {
    seen.lock().unwrap().push(order.id.to_string());
}

#[subscriber("codecs: cbor", retry = NoRetry)]
async fn cbor(order: Encoded<Cbor, Order>, State(seen): State<Seen>) {
    seen.lock().unwrap().push(order.id.to_string());
}

#[derive(Serialize, Deserialize)]
enum Kind {
    Plain,
    Sized { x: u8 },
}

/// Of a field of each kind that producers write in several ways.
#[derive(Serialize, Deserialize)]
struct Foreign {
    hash: Vec<u8>,
    short: [u8; 2],
    at: i64,
    /// Of bytes, to serde.
    label: CString,
    price: f64,
    large: u128,
    kinds: Vec<Kind>,
    none: Option<i64>,
    some: Option<u64>,
}

#[subscriber("codecs: foreign", retry = NoRetry)]
async fn foreign(body: Foreign, State(seen): State<Seen>) {
    seen.lock().unwrap().push(serde_json::to_string(&body).unwrap());
}

#[subscriber("codecs: list", retry = NoRetry)]
async fn list(numbers: Vec<u64>, State(seen): State<Seen>) {
    seen.lock().unwrap().push(format!("{numbers:?}"));
}

fn broker() -> (TestBroker, Seen) {
    let seen = Seen::default();
    let all = [
        order::subscriber(),
        text::subscriber(),
        json::subscriber(),
        mirrored::subscriber(),
        labelled::subscriber(),
        packed::subscriber(),
        cbor::subscriber(),
        foreign::subscriber(),
        list::subscriber(),
    ];
    (TestBroker::with(all).state(Arc::clone(&seen)), seen)
}

fn tea() -> Order {
    Order { id: 7, items: vec!["tea".into()] }
}

#[tokio::test]
async fn each_encoding_comes_back_by_its_content_type() {
    let (broker, seen) = broker();
    for message in [
        Outgoing::new("codecs: order", &tea()),
        Outgoing::encoded::<MessagePack>("codecs: order", &tea()),
        Outgoing::encoded::<Cbor>("codecs: order", &tea()),
        Outgoing::encoded::<MessagePack>("codecs: text", "lent"),
        Outgoing::encoded::<Cbor>("codecs: text", "copied"),
        Outgoing::encoded::<Mirrored>("codecs: mirrored", &120),
    ] {
        broker.publish_with(message).await.unwrap();
    }
    let order = r#"7 ["tea"]"#;
    assert_eq!(*seen.lock().unwrap(), [order, order, order, "lent", "copied", "120"]);
    assert!(broker.dlq_rows().is_empty());
}

/// As on a queue that changes its encoding and still holds what was published before.
#[tokio::test]
async fn a_handler_of_an_encoding_reads_those_that_name_another() {
    let (broker, seen) = broker();
    let raw = |payload: &'static str| Outgoing::raw("codecs: mirrored", payload);
    let messages = [
        Outgoing::new("codecs: mirrored", &120),
        Outgoing::encoded::<MessagePack>("codecs: mirrored", &120),
        Outgoing::encoded::<Cbor>("codecs: mirrored", &120),
        raw("120").content_type("application/X-number+JSON; charset=utf-8"),
        Outgoing::new("codecs: labelled", &120),
        // And its own.
        Outgoing::encoded::<Mirrored>("codecs: mirrored", &120),
        raw("021").content_type("Application/X-Mirrored; v=1"),
        raw("021").content_type("text/plain"),
        raw("021").content_type("application/octet-stream"),
        raw("021"),
        Outgoing::encoded::<Labelled>("codecs: labelled", &120),
    ];
    let all = messages.len();
    for message in messages {
        broker.publish_with(message).await.unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), vec!["120"; all]);
}

#[tokio::test]
async fn an_answer_with_the_headers_of_its_message_has_its_own_encoding() {
    let echo = Subscriber::new("echo", "packed", |ctx: outbox::Context| async move {
        ctx.publisher().collect(Outgoing::new("answers", &7).headers(ctx.headers()))
    });
    let broker = TestBroker::with([echo]);
    let packed = Outgoing::encoded::<MessagePack>("packed", &tea()).header("tenant", "a");
    broker.publish_with(packed).await.unwrap();
    let headers = broker.rows()[0].headers().unwrap();
    assert_eq!(
        (headers.content_type(), headers.get("tenant")),
        (Some("application/json"), Some("a"))
    );
}

/// They would never decode.
#[tokio::test]
async fn headers_of_another_encoding_are_refused() {
    let (broker, seen) = broker();
    let mut headers = Headers::new();
    headers.insert("content-type", "application/json");
    let packed = || Outgoing::encoded::<MessagePack>("codecs: order", &tea());
    let refused = broker.publish_with(packed().headers(&headers)).await;
    let Err(outbox::Error::Publish(PublishError::HeaderConflict(name))) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((name, broker.rows().len()), ("content-type", 0));
    headers.insert("content-type", MessagePack::CONTENT_TYPE);
    broker.publish_with(packed().headers(&headers)).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [r#"7 ["tea"]"#]);
}

#[tokio::test]
async fn json_is_read_whatever_the_content_type_says() {
    let (broker, seen) = broker();
    let body = serde_json::to_vec(&tea()).unwrap();
    for kind in ["text/plain", "application/cbor", "application/json; charset=utf-8"] {
        let message = Outgoing::raw("codecs: json", body.clone()).content_type(kind);
        broker.publish_with(message).await.unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), ["7", "7", "7"]);
}

/// Wrong bytes, and bytes that would overflow the stack of a careless reader.
#[tokio::test]
async fn bytes_that_do_not_decode_are_dead_letters_without_their_text() {
    let (broker, seen) = broker();
    let deep = |byte: u8| vec![byte; 200_000];
    let followed_by = |more: &[u8]| [&MessagePack::encode(&tea()).unwrap()[..], more].concat();
    let trailing = followed_by(&[1]);
    let secret = MessagePack::encode(&("4111 1111", 1)).unwrap();
    let kinds = [
        ("application/msgpack", deep(0x91)),
        ("application/msgpack", trailing),
        ("application/msgpack", followed_by(&[0x91])),
        ("application/msgpack", followed_by(&[0x92, 1])),
        ("application/msgpack", followed_by(&[0x81])),
        ("application/msgpack", followed_by(&[0xdc, 0, 5])),
        ("application/msgpack", followed_by(&[0xc0])),
        ("application/x-msgpack", secret),
        ("application/msgpack", Vec::new()),
        ("application/cbor", deep(0x81)),
        ("application/cbor", deep(0xd8)),
        ("application/cbor", vec![0xff]),
        ("application/cbor; x=1", Vec::new()),
    ];
    for (kind, payload) in &kinds {
        let message = Outgoing::raw("codecs: order", payload.clone()).content_type(*kind);
        broker.publish_with(message).await.unwrap();
    }
    let message = Outgoing::raw("codecs: mirrored", "4111 1111");
    broker.publish_with(message).await.unwrap();
    let letters = broker.dlq_rows();
    assert_eq!(letters.len(), kinds.len() + 1);
    for letter in letters {
        assert_eq!(letter.failure_reason, FailureReason::RetryTerminal);
        assert_eq!(letter.error_kind.as_deref(), Some("decode"));
        let text = letter.last_exception.unwrap();
        assert!(text.contains("is not the expected") && !text.contains("4111"), "{text}");
    }
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_payload_that_does_not_fit_names_the_field_in_every_encoding() {
    let (broker, _) = broker();
    let wrong = serde_json::json!({ "id": 7, "items": ["4111 1111", 4111] });
    for (message, encoding) in [
        (Outgoing::new("codecs: order", &wrong), "JSON"),
        (Outgoing::encoded::<MessagePack>("codecs: order", &wrong), "MessagePack"),
        (Outgoing::encoded::<MessagePack>("codecs: packed", &wrong), "MessagePack"),
        (Outgoing::encoded::<Cbor>("codecs: order", &wrong), "CBOR"),
        (Outgoing::encoded::<Cbor>("codecs: cbor", &wrong), "CBOR"),
    ] {
        broker.publish_with(message).await.unwrap();
        let text = broker.dlq_rows().pop().unwrap().last_exception.unwrap();
        assert!(text.contains(&format!("is not the expected {encoding}")), "{text}");
        assert!(text.contains(" in items[1]") && !text.contains("4111"), "{text}");
    }
    assert_eq!(broker.dlq_rows().len(), 5);
}

/// A library of another language chooses among the forms that CBOR has for one value.
#[tokio::test]
async fn cbor_of_others_is_read_in_every_form_that_says_the_same() {
    let (broker, seen) = broker();
    let field = |name: &[u8], value: &[u8]| {
        [&[0x60 + u8::try_from(name.len()).unwrap()], name, value].concat()
    };
    let large = [&b"\xc2\x49\x01"[..], &[0; 8]].concat();
    let fields = [
        field(b"hash", b"\x42\x01\xff"),
        field(b"short", b"\x42\x01\x02"),
        // A time, by tag 1.
        field(b"at", b"\xc1\x1a\x65\x53\xf1\x00"),
        field(b"label", b"\x83\x18\x61\x18\x62\x18\x63"),
        // A whole number, as JavaScript has them.
        field(b"price", b"\x02"),
        field(b"large", &large),
        field(b"kinds", b"\x82\x65Plain\xd8\x2a\xa1\x65Sized\xa1\x61x\xc1\x07"),
        field(b"none", b"\xf6"),
        field(b"some", b"\xc1\x09"),
    ];
    // The tag that says no more than that it is CBOR.
    let payload = [&b"\xd9\xd9\xf7\xa9"[..], &fields.concat()].concat();
    let send = async |queue: &str, payload: &[u8]| {
        let message = Outgoing::raw(queue, payload.to_vec()).content_type(Cbor::CONTENT_TYPE);
        broker.publish_with(message).await.unwrap();
    };
    send("codecs: foreign", &payload).await;
    let whole = concat!(
        r#"{"hash":[1,255],"short":[1,2],"at":1700000000,"label":[97,98,99],"price":2.0,"#,
        r#""large":18446744073709551616,"kinds":["Plain",{"Sized":{"x":7}}],"none":null,"some":9}"#
    );
    assert_eq!(*seen.lock().unwrap(), [whole]);
    // Each would be eight bytes.
    send("codecs: list", b"\x42\x01\x02").await;
    // A list for fields.
    send("codecs: order", b"\x82\x07\x81\x63tea").await;
    // More than a value.
    send("codecs: foreign", &[&payload[..], &[1]].concat()).await;
    // Numbers for the names of fields, and bytes for a text.
    send("codecs: order", b"\xa2\x00\x07\x01\x81\x63tea").await;
    send("codecs: text", b"\x43tea").await;
    assert_eq!((broker.dlq_rows().len(), seen.lock().unwrap().len()), (5, 1));
}

#[tokio::test]
async fn what_an_encoding_refuses_is_refused_before_it_is_a_row() {
    struct Never;
    impl Codec for Never {
        const CONTENT_TYPE: &'static str = "application/x-never";

        fn encode<T: Serialize + ?Sized>(_: &T) -> Result<Vec<u8>, BoxError> {
            Err("never".into())
        }

        fn decode<T: for<'a> Deserialize<'a>>(_: &[u8]) -> Result<T, BoxError> {
            Err("never".into())
        }
    }
    let (broker, _) = broker();
    let refused = broker.publish_with(Outgoing::encoded::<Never>("codecs: order", &1)).await;
    assert!(matches!(refused, Err(outbox::Error::Publish(PublishError::Encode(_)))));
    assert!(broker.rows().is_empty());
}
