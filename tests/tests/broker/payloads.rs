//! Payloads as other publishers write them.

use std::sync::{Arc, Mutex};

use outbox::{Outgoing, State, subscriber};

use super::*;

#[subscriber("number", retry = NoRetry)]
pub(super) async fn number(_: u64) {}

type Texts = Arc<Mutex<Vec<String>>>;

#[subscriber("text", retry = NoRetry)]
async fn text(text: String, State(texts): State<Texts>) {
    texts.lock().unwrap().push(text);
}

#[subscriber("value", retry = NoRetry)]
async fn value(value: serde_json::Value, State(texts): State<Texts>) {
    texts.lock().unwrap().push(value.to_string());
}

#[subscriber("maybe", retry = NoRetry)]
async fn maybe(value: Option<u64>, State(texts): State<Texts>) {
    texts.lock().unwrap().push(format!("{value:?}"));
}

async fn seen(message: Outgoing) -> Vec<String> {
    let texts = Texts::default();
    let all = [text::subscriber(), value::subscriber(), maybe::subscriber()];
    let broker = TestBroker::with(all).state(Arc::clone(&texts));
    broker.publish_with(message).await.unwrap();
    assert!(broker.rows().is_empty());
    texts.lock().unwrap().clone()
}

#[tokio::test]
async fn text_plain_as_python_writes_it_is_a_string() {
    for kind in ["text/plain", "text/plain; charset=utf-8", " Text/Plain"] {
        let message = Outgoing::raw("text", "naïve ☃").content_type(kind);
        assert_eq!(seen(message).await, ["naïve ☃"]);
    }
    let number = Outgoing::raw("text", "12").content_type("text/plain");
    assert_eq!(seen(number).await, ["12"], "a text that looks like JSON stays text");
}

#[tokio::test]
async fn without_a_content_type_json_is_tried() {
    assert_eq!(seen(Outgoing::raw("value", r#"{"a":[1,null]}"#)).await, [r#"{"a":[1,null]}"#]);
    assert_eq!(seen(Outgoing::raw("text", "\"quoted\"")).await, ["quoted"]);
}

#[tokio::test]
async fn a_content_type_in_the_headers_counts() {
    let message = Outgoing::raw("text", "\"x\"").header("content-type", "text/plain");
    assert_eq!(seen(message).await, ["\"x\""]);
    for kind in ["application/x-text+json", "application/octet-stream"] {
        assert_eq!(seen(Outgoing::new("text", "x").header("content-type", kind)).await, ["x"]);
    }
}

type Sums = Arc<Mutex<Vec<f64>>>;

#[subscriber("sums", retry = NoRetry)]
async fn sums(found: Vec<f64>, State(sums): State<Sums>) {
    *sums.lock().unwrap() = found;
}

/// serde_json reads the last bit of some of them wrong, unless it is asked not to.
#[tokio::test]
async fn a_number_is_the_one_that_was_published_to_the_last_bit() {
    let mut rng = fastrand::Rng::with_seed(1);
    let any = std::iter::repeat_with(|| f64::from_bits(rng.u64(..)));
    let published: Vec<f64> = any.filter(|sum| sum.is_finite()).take(10_000).collect();
    let found = Sums::default();
    let broker = TestBroker::with([sums::subscriber()]).state(Arc::clone(&found));
    broker.publish("sums", &published).await.unwrap();
    let bits = |sums: &[f64]| sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&found.lock().unwrap()), bits(&published));
}

#[tokio::test]
async fn null_is_a_value() {
    assert_eq!(seen(Outgoing::new("maybe", &())).await, ["None"]);
    assert_eq!(seen(Outgoing::new("maybe", &Some(3))).await, ["Some(3)"]);
}

#[tokio::test]
async fn a_dead_letter_of_a_bad_payload_names_the_place_and_hides_the_value() {
    let broker = TestBroker::with([number::subscriber()]);
    broker.publish("number", "4111 1111 1111 1111").await.unwrap();
    let text = Outgoing::raw("number", "4111 1111").content_type("text/plain");
    broker.publish_with(text).await.unwrap();
    for letter in broker.dlq_rows() {
        let text = letter.last_exception.unwrap();
        assert!(!text.contains("4111"), "{text}");
        assert_eq!(letter.error_kind.as_deref(), Some("decode"));
    }
    let place = broker.dlq_rows()[0].last_exception.clone().unwrap();
    assert!(place.contains("line 1 column 21"), "{place}");
}

#[tokio::test]
async fn every_message_has_a_correlation_id_of_its_own() {
    let broker = TestBroker::with([it(|| ())]);
    broker.publish_batch((0..3).map(|n| Outgoing::new("elsewhere", &n))).await.unwrap();
    let ids: std::collections::HashSet<_> = broker
        .rows()
        .iter()
        .map(|row| row.headers().unwrap().correlation_id().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 3);
}

#[subscriber("borrowed", retry = NoRetry)]
async fn borrowed(text: &str, State(texts): State<Texts>) {
    texts.lock().unwrap().push(text.to_owned());
}

#[derive(serde::Deserialize)]
struct Item<'a> {
    name: &'a str,
    prices: Vec<u64>,
}

#[subscriber("items", retry = NoRetry)]
async fn items(item: Item<'_>, ctx: outbox::Context, State(texts): State<Texts>) {
    // Not copied: it lies in the row's own bytes.
    let within = ctx.payload().as_ptr_range().contains(&item.name.as_ptr());
    texts.lock().unwrap().push(format!("{} {} {within}", item.name, item.prices.len()));
}

/// JSON escapes what a `&str` cannot borrow: it depends on the text.
#[tokio::test]
async fn a_field_that_cannot_borrow_an_escaped_text_says_so() {
    let texts = Texts::default();
    let broker = TestBroker::with([items::subscriber()]).state(Arc::clone(&texts));
    let item = r#"{"name": "ca\u0066\u00e9", "prices": []}"#;
    broker.publish_with(Outgoing::raw("items", item)).await.unwrap();
    let letter = only_letter(&broker);
    let why = letter.last_exception.unwrap();
    assert!(why.contains("take `Cow<str>`") && why.contains("in name"), "{why}");
    assert!(texts.lock().unwrap().is_empty());
}

#[tokio::test]
async fn text_is_lent_whether_it_was_json_or_plain_or_escaped() {
    let texts = Texts::default();
    let broker = TestBroker::with([borrowed::subscriber()]).state(Arc::clone(&texts));
    broker.publish("borrowed", "json").await.unwrap();
    broker.publish("borrowed", "esc\"aped\n").await.unwrap();
    let plain = Outgoing::raw("borrowed", "plain").content_type("text/plain");
    broker.publish_with(plain).await.unwrap();
    assert_eq!(*texts.lock().unwrap(), ["json", "esc\"aped\n", "plain"]);
}

#[tokio::test]
async fn a_payload_is_lent_without_copying_it() {
    let texts = Texts::default();
    let broker = TestBroker::with([items::subscriber()]).state(Arc::clone(&texts));
    broker.publish("items", &serde_json::json!({ "name": "tea", "prices": [1, 2] })).await.unwrap();
    assert_eq!(*texts.lock().unwrap(), ["tea 2 true"]);
}

#[tokio::test]
async fn a_payload_that_does_not_fit_names_the_field() {
    let broker = TestBroker::with([items::subscriber()]).state(Texts::default());
    let wrong = serde_json::json!({ "name": "tea", "prices": [1, "4111 1111"] });
    broker.publish("items", &wrong).await.unwrap();
    let letter = only_letter(&broker);
    let text = letter.last_exception.unwrap();
    assert!(text.contains("prices[1]") && !text.contains("4111"), "{text}");
}
