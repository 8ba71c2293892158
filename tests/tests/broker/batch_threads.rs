//! Handlers of batches that are plain fns: a run is one blocking thread.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outbox::{Batch, BatchOutcome, FailureReason, FromContext, Outgoing, State, subscriber};
use outbox_tests::wait::eventually;
use serde::{Deserialize, Deserializer};

use super::*;

fn here() -> String {
    format!("{:?}", std::thread::current().id())
}

fn all(queue: &str, messages: &[&str]) -> Vec<Outgoing> {
    messages.iter().map(|message| Outgoing::new(queue, *message)).collect()
}

type Lines = &'static Mutex<Vec<String>>;

/// Knows the thread that read it.
struct Word {
    text: String,
    read_on: String,
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text == "broken" {
            return Err(serde::de::Error::custom("no word"));
        }
        Ok(Self { text, read_on: here() })
    }
}

#[subscriber("batch threads: each", batch = 10, retry = NoRetry)]
fn each(words: Vec<Word>, State(seen): State<Lines>) -> Vec<Outcome> {
    let ending = |word: Word| {
        assert_eq!(word.read_on, here(), "decoding is over there too");
        seen.lock().unwrap().push(word.read_on);
        if word.text == "bad" { Outcome::reject("bad") } else { Outcome::Ack }
    };
    words.into_iter().map(ending).collect()
}

#[tokio::test]
async fn a_batch_runs_on_one_blocking_thread_and_each_message_is_settled_in_its_own_way() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let broker = TestBroker::with([each::subscriber()]).state(&SEEN);
    let words = ["broken", "good", "bad", "good"];
    broker.publish_batch(all("batch threads: each", &words)).await.unwrap();
    let seen = SEEN.lock().unwrap().clone();
    assert_eq!(seen.len(), 3, "one that does not decode fails alone");
    assert!(seen.iter().all(|thread| *thread == seen[0] && *thread != here()), "{seen:?}");
    let endings: Vec<_> = broker.calls("each").into_iter().map(|call| call.ending).collect();
    let [undecoded, rejected] =
        [FailureReason::RetryTerminal, FailureReason::Rejected].map(Ending::Terminal);
    assert_eq!(endings, [undecoded, Ending::Acked, rejected, Ending::Acked]);
    broker.publish("batch threads: each", "broken").await.unwrap();
    assert_eq!(SEEN.lock().unwrap().len(), 3, "nothing to call it with");
    assert!(broker.rows().is_empty());
}

#[subscriber("batch threads: panic", batch = 3, retry = NoRetry)]
fn panicking(numbers: Vec<i64>) {
    assert!(numbers.is_empty(), "as told");
}

#[tokio::test]
async fn a_panic_over_there_is_each_message_s() {
    let broker = TestBroker::with([panicking::subscriber()]);
    let numbers = (0..3).map(|n| Outgoing::new("batch threads: panic", &n));
    broker.publish_batch(numbers).await.unwrap();
    let kinds: Vec<_> = broker.dlq_rows().into_iter().filter_map(|row| row.error_kind).collect();
    assert_eq!(kinds, ["panic"; 3]);
}

/// A parameter that is made on the runtime, if the message names a tenant.
struct Tenant(String);

impl FromContext for Tenant {
    type Rejection = &'static str;

    const SAME_FOR_ALL: bool = true;

    async fn from_context(ctx: &outbox::Context) -> Result<Self, Self::Rejection> {
        tokio::task::yield_now().await;
        let name = ctx.headers().get("tenant").ok_or("the message names no tenant")?;
        Ok(Self(format!("{name} on {}", here())))
    }
}

#[subscriber("batch threads: tenant", batch = 10, retry = NoRetry)]
fn tenants(_: Vec<i64>, Tenant(tenant): Tenant, State(seen): State<Lines>) {
    seen.lock().unwrap().push(tenant);
}

#[tokio::test]
async fn parameters_are_made_before_once_a_run_and_their_refusal_is_each_message_s() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let broker = TestBroker::with([tenants::subscriber()]).state(&SEEN);
    let number = |n: i64| Outgoing::new("batch threads: tenant", &n);
    broker.publish_batch((0..2).map(|n| number(n).header("tenant", "acme"))).await.unwrap();
    assert_eq!(*SEEN.lock().unwrap(), [format!("acme on {}", here())]);
    broker.publish_batch((0..2).map(number)).await.unwrap();
    let kinds: Vec<_> = broker.dlq_rows().into_iter().filter_map(|row| row.error_kind).collect();
    assert_eq!(kinds, ["extract"; 2]);
    assert_eq!(SEEN.lock().unwrap().len(), 1, "it was not called");
}

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static TOLD: AtomicUsize = AtomicUsize::new(0);

/// Runs on after its timeout until every message has told it.
#[subscriber("batch threads: stubborn", batch = 2, max_workers = 1, timeout = "20ms", retry = NoRetry)]
fn stubborn(numbers: Batch<i64>) {
    MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    let end = Instant::now() + Duration::from_secs(10);
    let told = || numbers.iter().filter(|one| one.context.cancelled().is_cancelled()).count();
    while told() < numbers.len() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    TOLD.fetch_add(told(), Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(50));
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

#[tokio::test]
async fn every_message_hears_of_the_timeout_and_the_run_keeps_its_place_until_it_ends() {
    let broker = TestBroker::with([stubborn::subscriber()]);
    let numbers = (0..6).map(|n| Outgoing::new("batch threads: stubborn", &n));
    broker.publish_batch(numbers).await.unwrap();
    let kinds: Vec<_> = broker.dlq_rows().into_iter().filter_map(|row| row.error_kind).collect();
    assert_eq!(kinds, ["timeout"; 6]);
    let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
    eventually("all have ended", async || count(&TOLD) >= 6 && count(&RUNNING) == 0).await;
    assert_eq!(MOST.load(Ordering::SeqCst), 1, "max_workers bounds the threads too");
    assert_eq!(TOLD.load(Ordering::SeqCst), 6, "each run has its own time");
}

#[subscriber("batch threads: collect", batch = 2)]
fn collecting(numbers: Batch<i64>, State(seen): State<Lines>) -> BatchOutcome {
    let mut outcome = BatchOutcome::default();
    for item in &numbers {
        let doubled = Outgoing::new("doubled", &(2 * item.message));
        outcome.set(&item.context, item.context.publisher().collect(doubled));
    }
    seen.lock().unwrap().extend(outbox::tracking_ids().iter().map(ToString::to_string));
    outcome
}

#[tokio::test]
async fn what_it_collects_comes_from_its_message_and_a_run_of_one_has_its_trail() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let broker = TestBroker::with([collecting::subscriber()]).state(&SEEN);
    let number =
        |n: i64| Outgoing::new("batch threads: collect", &n).correlation_id(format!("work {n}"));
    broker.publish_batch([1, 2].map(number)).await.unwrap();
    let work = |row: &outbox::Row| {
        let headers = row.headers().unwrap();
        (row.payload.clone(), headers.correlation_id().unwrap().to_owned())
    };
    let rows: Vec<_> = broker.rows().iter().map(work).collect();
    assert_eq!(rows, [("2".into(), "work 1".to_owned()), ("4".into(), "work 2".to_owned())]);
    assert!(SEEN.lock().unwrap().is_empty(), "of several messages none is the run's");
    broker.publish_with(number(3)).await.unwrap();
    let call = broker.calls("collecting").pop().unwrap();
    let own = call.headers.get("outbox-tracking-ids").unwrap();
    assert_eq!(*SEEN.lock().unwrap(), [own]);
}
