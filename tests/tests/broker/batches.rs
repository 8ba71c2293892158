//! Handlers of several messages at once.

use std::sync::{Arc, Mutex};

use outbox::{
    AckPolicy, Batch, BatchOutcome, Bytes, Context, Encoded, FailureReason, HandlerResult,
    IntoOutcomes, Json, MessagePack, Next, Outgoing, State, Subscriber, subscriber,
};

use outbox_tests::wait::soon;

use super::*;

type Seen = Arc<Mutex<Vec<Vec<i64>>>>;

#[subscriber("batches: all", batch = 4, retry = NoRetry)]
async fn all(numbers: Vec<i64>, State(seen): State<Seen>) -> Result<(), String> {
    let failed = numbers.contains(&13);
    seen.lock().unwrap().push(numbers);
    if failed { Err("thirteen".into()) } else { Ok(()) }
}

fn numbers(queue: &str, numbers: impl IntoIterator<Item = i64>) -> Vec<Outgoing> {
    numbers.into_iter().map(|n| Outgoing::new(queue, &n)).collect()
}

#[tokio::test]
async fn a_batch_holds_what_is_there_up_to_its_size() {
    let seen = Seen::default();
    let broker = TestBroker::with([all::subscriber()]).state(Arc::clone(&seen));
    broker.publish_batch(numbers("batches: all", 1..=10)).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![9, 10]]);
    assert!(broker.rows().is_empty() && broker.dlq_rows().is_empty());
    assert_eq!(broker.calls("all").len(), 10, "a call for each message");
}

#[tokio::test]
async fn an_error_for_all_is_each_message_s_error() {
    let broker = TestBroker::with([all::subscriber()]).state(Seen::default());
    broker.publish_batch(numbers("batches: all", [11, 12, 13])).await.unwrap();
    let letters = broker.dlq_rows();
    assert_eq!(letters.len(), 3);
    assert!(letters.iter().all(|letter| letter.last_exception.as_deref() == Some("\"thirteen\"")));
}

#[tokio::test]
async fn a_message_that_does_not_decode_fails_alone() {
    let seen = Seen::default();
    let broker = TestBroker::with([all::subscriber()]).state(Arc::clone(&seen));
    let mut messages = numbers("batches: all", [1, 2]);
    messages.insert(1, Outgoing::new("batches: all", "no number"));
    broker.publish_batch(messages).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [[1, 2]]);
    assert_eq!(only_letter(&broker).error_kind.as_deref(), Some("decode"));
    broker.publish("batches: all", "none at all").await.unwrap();
    assert_eq!((seen.lock().unwrap().len(), broker.dlq_rows().len()), (1, 2));
}

#[subscriber("batches: raw", batch = 4, retry = NoRetry)]
async fn raw(payloads: Vec<Bytes>, State(seen): State<Seen>) {
    seen.lock().unwrap().push(payloads.iter().flatten().copied().map(i64::from).collect());
}

#[subscriber("batches: json", batch = 4, retry = NoRetry)]
fn json(numbers: Batch<Json<i64>>, State(seen): State<Seen>) {
    seen.lock().unwrap().push(numbers.into_iter().map(|item| item.message.0).collect());
}

#[subscriber("batches: packed", batch = 4, retry = NoRetry)]
async fn packed(numbers: Vec<Encoded<MessagePack, i64>>, State(seen): State<Seen>) {
    seen.lock().unwrap().push(numbers.iter().map(|number| **number).collect());
}

#[tokio::test]
async fn a_batch_is_read_as_one_message_is() {
    let seen = Seen::default();
    let all = [raw::subscriber(), json::subscriber(), packed::subscriber()];
    let broker = TestBroker::with(all).state(Arc::clone(&seen));
    let wrong = |queue| Outgoing::raw(queue, vec![0xc1]);
    let bytes = [wrong("batches: raw"), Outgoing::raw("batches: raw", "\x01\x02")];
    broker.publish_batch(bytes).await.unwrap();
    let text = Outgoing::raw("batches: json", "3").content_type("text/plain");
    broker.publish_batch([wrong("batches: json"), text]).await.unwrap();
    let five = Outgoing::encoded::<MessagePack>("batches: packed", &5);
    let messages = [wrong("batches: packed"), Outgoing::new("batches: packed", &4), five];
    broker.publish_batch(messages).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [vec![0xc1, 1, 2], vec![3], vec![4, 5]]);
    let letters = broker.dlq_rows();
    assert_eq!(letters.len(), 2, "what does not decode fails alone");
    assert!(letters.iter().all(|letter| letter.error_kind.as_deref() == Some("decode")));
}

/// Panics at thirteen while it is read.
struct Read(i64);

impl<'de> serde::Deserialize<'de> for Read {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(from)?;
        assert!(number != 13, "thirteen");
        Ok(Self(number))
    }
}

#[subscriber("batches: read", batch = 4, retry = NoRetry)]
async fn read(numbers: Vec<Read>, State(seen): State<Seen>) {
    seen.lock().unwrap().push(numbers.iter().map(|read| read.0).collect());
}

#[tokio::test]
async fn a_message_whose_decoding_panics_fails_alone() {
    let seen = Seen::default();
    let broker = TestBroker::with([read::subscriber()]).state(Arc::clone(&seen));
    broker.publish_batch(numbers("batches: read", [12, 13, 14])).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [[12, 14]]);
    assert_eq!(only_letter(&broker).error_kind.as_deref(), Some("panic"));
}

#[tokio::test]
async fn a_panic_of_a_layer_is_of_its_message_alone() {
    let seen = Seen::default();
    let broker = TestBroker::with([all::subscriber()]).state(Arc::clone(&seen));
    let broker = broker.layer(|context: Context, next: Next| async move {
        assert!(context.payload() != b"11", "before");
        let (twelve, result) = (context.payload() == b"12", next.run(context).await);
        assert!(!twelve, "after");
        result
    });
    broker.publish_batch(numbers("batches: all", [10, 11, 12])).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [[10, 12]]);
    let letters = broker.dlq_rows();
    let dead: Vec<_> =
        letters.iter().map(|it| (&it.payload[..], it.error_kind.as_deref())).collect();
    assert_eq!(dead, [(&b"11"[..], Some("panic")), (b"12", Some("panic"))]);
}

#[subscriber("batches: each", batch = 10, retry = Constant("1s", max_attempts = 2))]
async fn each(numbers: Vec<i64>) -> Vec<Outcome> {
    let judge = |n| match n {
        1 => Outcome::Ack,
        2 => Outcome::Nack,
        3 => Outcome::reject("three"),
        _ => Outcome::Snooze(60 * SECOND),
    };
    numbers.into_iter().map(judge).collect()
}

#[tokio::test]
async fn each_message_has_its_own_outcome() {
    let broker = TestBroker::with([each::subscriber()]);
    broker.publish_batch(numbers("batches: each", 1..=4)).await.unwrap();
    let endings: Vec<_> = broker.calls("each").into_iter().map(|call| call.ending).collect();
    let rejected = Ending::Terminal(FailureReason::Rejected);
    let [second, minute] = [Ending::Retried(SECOND), Ending::Snoozed(60 * SECOND)];
    assert_eq!(endings, [Ending::Acked, second, rejected, minute]);
}

#[subscriber("batches: wrong", batch = 10, retry = NoRetry)]
async fn wrong(_: Vec<i64>) -> Vec<Result<(), String>> {
    vec![Ok(())]
}

#[tokio::test]
async fn another_number_of_outcomes_than_messages_fails_them_all() {
    let broker = TestBroker::with([wrong::subscriber()]);
    broker.publish_batch(numbers("batches: wrong", 1..=2)).await.unwrap();
    let letters = broker.dlq_rows();
    assert_eq!(letters.len(), 2);
    let text = letters[0].last_exception.as_deref().unwrap();
    assert!(text.contains("1 outcomes for 2 messages"), "{text}");
    assert_eq!(letters[0].error_kind.as_deref(), Some("results"));
}

/// Results without the first one.
struct Short(Vec<Context>);

impl IntoOutcomes for Short {
    fn into_outcomes(self, deliveries: &[Context]) -> Vec<HandlerResult> {
        assert_eq!(self.0.len(), deliveries.len());
        deliveries.iter().skip(1).map(|_| Ok(Outcome::Ack)).collect()
    }
}

#[subscriber("batches: short", batch = 10, retry = NoRetry)]
async fn short(batch: Batch<i64>) -> Short {
    Short(batch.iter().map(|item| item.context.clone()).collect())
}

/// By place, the one that was left out would be acked.
#[tokio::test]
async fn so_does_a_type_of_its_own_and_beneath_layers() {
    let by_hand = |name, queue| {
        let answers = |batch: Vec<Context>| async move { Short(batch) };
        Subscriber::batches(name, queue, 10, answers).retry(outbox::retry::NoRetry)
    };
    let [plain, layered] = ["batches: by hand", "batches: beneath"].map(|it| by_hand(it, it));
    let layered = layered.layer(async |ctx: Context, next: Next| next.run(ctx).await);
    let broker = TestBroker::with([short::subscriber(), plain, layered]);
    for queue in ["batches: short", "batches: by hand", "batches: beneath"] {
        broker.publish_batch(numbers(queue, 1..=3)).await.unwrap();
        let letters = broker.dlq_rows();
        let of_it: Vec<_> = letters.iter().filter(|it| it.queue == queue).collect();
        assert_eq!(of_it.len(), 3, "{queue}");
        for letter in of_it {
            let text = letter.last_exception.as_deref().unwrap();
            assert!(text.contains("2 results for 3 messages"), "{queue}: {text}");
            assert_eq!(letter.error_kind.as_deref(), Some("results"));
        }
    }
}

#[subscriber("batches: named", batch = 10, retry = NoRetry)]
async fn named(numbers: Batch<i64>) -> BatchOutcome {
    let mut outcome = BatchOutcome::default();
    for item in &numbers {
        if item.message < 0 {
            outcome.set(&item.context, Err::<(), _>("negative"));
        } else {
            let doubled = Outgoing::new("batches: doubled", &(item.message * 2));
            item.context.publisher().collect(doubled).unwrap();
        }
    }
    outcome
}

#[tokio::test]
async fn those_that_are_not_named_are_acked_and_publish_what_they_collected() {
    let broker = TestBroker::with([named::subscriber()]);
    broker.publish_batch(numbers("batches: named", [1, -2, 3])).await.unwrap();
    let rows = broker.rows();
    let doubled: Vec<_> = rows.iter().map(|row| &row.payload[..]).collect();
    assert_eq!(doubled, [b"2", b"6"]);
    assert_eq!(broker.dlq_rows()[0].payload, "-2");
}

async fn odd_only(ctx: Context, next: Next) -> HandlerResult {
    if ctx.decode::<i64>()? % 2 == 0 {
        return Ok(Outcome::reject("even"));
    }
    next.run(ctx).await
}

#[tokio::test]
async fn a_layer_sees_each_message_and_the_handler_those_that_come_through() {
    let seen = Seen::default();
    let broker = TestBroker::with([all::subscriber()]).state(Arc::clone(&seen)).layer(odd_only);
    broker.publish_batch(numbers("batches: all", 1..=4)).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [[1, 3]]);
    let notes: Vec<_> = broker.dlq_rows().into_iter().filter_map(|letter| letter.note).collect();
    assert_eq!(notes, ["even", "even"]);
    broker.publish_batch(numbers("batches: all", [2])).await.unwrap();
    assert_eq!(seen.lock().unwrap().len(), 1, "nothing came through");
}

/// Waits a second for the handler; the message 2 comes only after that.
async fn impatient(ctx: Context, next: Next) -> HandlerResult {
    if ctx.decode::<i64>()? == 2 {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let waited = tokio::time::timeout(Duration::from_secs(1), next.run(ctx)).await;
    waited.unwrap_or_else(|_| Ok(Outcome::reject("too late")))
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_layer_has_given_up_is_neither_waited_for_nor_handled() {
    let seen = Seen::default();
    let broker = TestBroker::with([all::subscriber()]).state(Arc::clone(&seen)).layer(impatient);
    soon("it ends", broker.publish_batch(numbers("batches: all", 1..=4))).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [[2]]);
    assert_eq!(broker.dlq_rows().len(), 3);
}

#[tokio::test]
async fn a_panic_is_each_message_s() {
    let panicking =
        Subscriber::batches("it", "q", 3, |_| async { assert!(std::env::args().count() > 99) });
    let broker = TestBroker::with([panicking.retry(outbox::retry::NoRetry)]);
    broker.publish_batch(numbers("q", 1..=3)).await.unwrap();
    let kinds: Vec<_> = broker.dlq_rows().into_iter().filter_map(|row| row.error_kind).collect();
    assert_eq!(kinds, ["panic"; 3]);
}

#[tokio::test]
async fn ack_first_deletes_the_batch_before_it_runs() {
    let runs = Arc::<Mutex<Vec<_>>>::default();
    let told = Arc::clone(&runs);
    let failing = Subscriber::batches("it", "q", 3, move |batch: Vec<Context>| {
        let rows = batch[0].state::<TestBroker>().unwrap().rows().len();
        told.lock().unwrap().push((batch.len(), rows));
        async { Err::<(), _>("too late") }
    });
    let broker = TestBroker::with([failing.ack(AckPolicy::AckFirst)]);
    let broker = broker.clone().state(broker);
    broker.publish_batch(numbers("q", 1..=3)).await.unwrap();
    assert_eq!(*runs.lock().unwrap(), [(3, 0)]);
    assert!(broker.rows().is_empty() && broker.dlq_rows().is_empty());
}

#[tokio::test]
async fn under_manual_an_outcome_of_a_batch_is_a_word_for_those_it_does_not_name() {
    let subscriber = Subscriber::batches("it", "q", 3, |batch: Vec<Context>| async move {
        let mut outcome = BatchOutcome::default();
        outcome.set(&batch[1], Err::<(), _>("as told"));
        outcome
    });
    let broker =
        TestBroker::with([subscriber.ack(AckPolicy::Manual).retry(outbox::retry::NoRetry)]);
    broker.publish_batch(numbers("q", 1..=3)).await.unwrap();
    assert_eq!(only_letter(&broker).payload, b"2"[..]);
    let silent = Subscriber::batches("it", "q", 3, |_| async {}).ack(AckPolicy::Manual);
    let broker = TestBroker::with([silent]);
    broker.publish_batch(numbers("q", 1..=3)).await.unwrap();
    assert_eq!(broker.dlq_rows().len(), 3);
}
