//! Handlers of batches that return messages: one for each, with its own ack.

use outbox::{Batch, Outgoing, Queue, subscriber};

use super::*;

static DOUBLED: Queue<i64> = Queue::new("doubled");

#[subscriber("batch publish: each", batch = 10, publish = DOUBLED, retry = NoRetry)]
async fn each(numbers: Vec<i64>) -> Vec<i64> {
    numbers.into_iter().map(|n| 2 * n).collect()
}

#[subscriber("batch publish: some", batch = 10, publish = "doubled", retry = NoRetry)]
fn some(numbers: Batch<i64>) -> Result<Vec<Result<Option<i64>, String>>, String> {
    if numbers.iter().any(|item| item.message == 13) {
        return Err("thirteen".into());
    }
    let one = |n| match n {
        ..0 => Err(format!("{n} is negative")),
        0 => Ok(None),
        _ => Ok(Some(2 * n)),
    };
    Ok(numbers.into_iter().map(|item| one(item.message)).collect())
}

#[subscriber("batch publish: fewer", batch = 10, publish = "doubled", retry = NoRetry)]
async fn fewer(_: Vec<i64>) -> Vec<i64> {
    vec![7]
}

#[subscriber("batch publish: chosen", batch = 10, publish = "doubled", retry = NoRetry)]
async fn chosen(numbers: Vec<i64>) -> Vec<Vec<Outgoing>> {
    // As many queues as the number says.
    let queues = |n| (0..n).map(move |at| Outgoing::new(format!("queue {at}"), &n)).collect();
    numbers.into_iter().map(queues).collect()
}

fn message(queue: &str, n: i64) -> Outgoing {
    Outgoing::new(queue, &n).correlation_id(format!("work {n}"))
}

/// What is published, with the work it belongs to.
fn published(broker: &TestBroker) -> Vec<(String, String)> {
    let show = |row: outbox::Row| {
        let work = row.headers().unwrap().correlation_id().unwrap().to_owned();
        (String::from_utf8_lossy(&row.payload).into_owned(), work)
    };
    broker.rows().into_iter().map(show).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|&(n, work)| (n.to_owned(), work.to_owned())).collect()
}

#[tokio::test]
async fn each_value_is_published_with_the_ack_of_its_own_message() {
    let broker = TestBroker::with([each::subscriber()]);
    let mut messages: Vec<_> = (1..=3).map(|n| message("batch publish: each", n)).collect();
    messages.insert(1, Outgoing::new("batch publish: each", "no number"));
    broker.publish_batch(messages).await.unwrap();
    assert_eq!(published(&broker), pairs(&[("2", "work 1"), ("4", "work 2"), ("6", "work 3")]));
    assert_eq!(broker.dlq_rows().len(), 1, "one that does not decode fails alone");
}

#[tokio::test]
async fn none_publishes_nothing_and_an_error_is_that_of_its_message() {
    let broker = TestBroker::with([some::subscriber()]);
    let messages = [-1, 0, 4].map(|n| message("batch publish: some", n));
    broker.publish_batch(messages).await.unwrap();
    assert_eq!(published(&broker), pairs(&[("8", "work 4")]));
    assert_eq!(only_letter_of(&broker), "\"-1 is negative\"");
}

fn only_letter_of(broker: &TestBroker) -> String {
    let mut letters = broker.dlq_rows();
    assert_eq!(letters.len(), 1);
    letters.remove(0).last_exception.unwrap()
}

#[tokio::test]
async fn an_error_for_all_publishes_nothing() {
    let broker = TestBroker::with([some::subscriber()]);
    let messages = [1, 13].map(|n| message("batch publish: some", n));
    broker.publish_batch(messages).await.unwrap();
    assert_eq!((published(&broker), broker.dlq_rows().len()), (Vec::new(), 2));
}

#[tokio::test]
async fn another_number_of_values_than_messages_fails_them_all_and_publishes_nothing() {
    let broker = TestBroker::with([fewer::subscriber()]);
    let messages = [1, 2].map(|n| message("batch publish: fewer", n));
    broker.publish_batch(messages).await.unwrap();
    let letters = broker.dlq_rows();
    assert_eq!((published(&broker), letters.len()), (Vec::new(), 2));
    assert_eq!(letters[0].error_kind.as_deref(), Some("results"));
    let text = letters[0].last_exception.as_deref().unwrap();
    assert!(text.contains("it returned 1 for 2 messages"), "{text}");
}

#[tokio::test]
async fn a_message_of_a_batch_may_publish_several_that_choose_for_themselves() {
    let broker = TestBroker::with([chosen::subscriber()]);
    let messages = [2, 0].map(|n| message("batch publish: chosen", n));
    broker.publish_batch(messages).await.unwrap();
    assert_eq!(published(&broker), pairs(&[("2", "work 2"), ("2", "work 2")]));
    let queues: Vec<_> = broker.rows().into_iter().map(|row| row.queue).collect();
    assert_eq!(queues, ["queue 0", "queue 1"]);
}
