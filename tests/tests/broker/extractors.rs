//! Values that handlers ask for.

use std::sync::{Arc, Mutex};

use outbox::{Bytes, Context, Headers, Outgoing, State, subscriber};

use super::*;

type Seen = Arc<Mutex<Vec<String>>>;

#[subscriber(["first", "second"])]
async fn curious(n: u64, State(seen): State<Seen>, context: Context, headers: Headers) {
    assert_eq!(context.payload(), n.to_string().as_bytes());
    assert_eq!(context.payload_bytes(), context.payload());
    assert_eq!(context.headers(), &headers);
    assert!(!context.cancelled().is_cancelled());
    assert!(context.lease_deadline() > tokio::time::Instant::now());
    let broker = context.state::<TestBroker>().unwrap();
    assert_eq!(context.created_at(), broker.rows()[0].created_at);
    // After what it asserts: its panic would be a run that is tried again.
    seen.lock().unwrap().push(format!(
        "{n} {} {} {} {} {} {:?} {:?} {}",
        context.id(),
        context.queue(),
        context.subscriber(),
        context.deliveries(),
        context.attempts(),
        context.timer_id(),
        headers.get("tenant"),
        context.correlation_id(),
    ));
}

#[tokio::test]
async fn context_headers_and_state_are_those_of_the_delivery() {
    let seen = Seen::default();
    let broker = TestBroker::with([curious::subscriber()]).state(Arc::clone(&seen));
    let broker = broker.clone().state(broker);
    let message = Outgoing::new("first", &7).header("tenant", "acme").correlation_id("c-9");
    broker.publish_with(message).await.unwrap();
    let message = Outgoing::new("second", &8).timer_id("t").correlation_id("c-10");
    broker.publish_with(message).await.unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [
            "7 1 first curious 1 0 None Some(\"acme\") c-9",
            "8 2 second curious 1 0 Some(\"t\") None c-10"
        ]
    );
}

#[tokio::test]
async fn the_counts_of_a_second_run_are_told() {
    let seen = Seen::default();
    let told = Arc::clone(&seen);
    let subscriber = Subscriber::new("it", "q", move |context: Context| {
        told.lock().unwrap().push(format!("{} {}", context.deliveries(), context.attempts()));
        async { failing() }
    });
    let (broker, _) = first_ending(subscriber).await;
    broker.crash_next(1);
    broker.advance(2 * SECOND).await;
    broker.redeliver().await;
    assert_eq!(*seen.lock().unwrap(), ["1 0", "2 1", "3 1"]);
}

#[subscriber("bytes")]
async fn bytes(payload: Bytes, State(seen): State<Seen>) {
    seen.lock().unwrap().push(format!("{payload:?}"));
}

#[subscriber("slice")]
async fn slice(payload: &[u8], State(seen): State<Seen>) {
    seen.lock().unwrap().push(format!("{payload:?}"));
}

#[tokio::test]
async fn raw_bytes_are_not_decoded() {
    let seen = Seen::default();
    let broker =
        TestBroker::with([bytes::subscriber(), slice::subscriber()]).state(Arc::clone(&seen));
    broker.publish_with(Outgoing::raw("bytes", &b"\xff\x00"[..])).await.unwrap();
    broker.publish_with(Outgoing::raw("slice", &b"\xff\x00"[..])).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["b\"\\xff\\0\"", "[255, 0]"]);
}

#[derive(Clone)]
struct Mailer;

#[subscriber("mail")]
async fn mail(_: u64, _: State<Mailer>) {}

const MAIL_LINE: u32 = line!() - 2;

#[tokio::test]
async fn a_missing_state_is_refused_with_the_handler_s_file_and_line() {
    let broker = TestBroker::with([mail::subscriber()]);
    let error = broker.publish("mail", &7).await.unwrap_err().to_string();
    assert!(error.contains(&format!("{}:{MAIL_LINE}", file!())), "{error}");
    assert!(error.contains("Mailer") && error.contains(".state("), "{error}");
    assert!(broker.rows().is_empty(), "nothing was published");
    let broker = TestBroker::with([mail::subscriber()]).state(Mailer);
    broker.publish("mail", &7).await.unwrap();
}

const NOWHERE: &str = "";

#[subscriber("answers", publish = NOWHERE)]
async fn answers(n: u64) -> u64 {
    n
}

#[tokio::test]
async fn every_mistake_of_every_subscriber_is_told_at_once() {
    let zero = it(|| ()).max_workers(0).max_deliveries(0);
    let broker = TestBroker::with([
        zero,
        mail::subscriber(),
        answers::subscriber(),
        Subscriber::new("other", ["q", "", "x", "x"], |_| async {}),
    ]);
    let error = broker.publish("mail", &7).await.unwrap_err().to_string();
    for part in [
        "max_workers",
        "max_deliveries",
        "Mailer",
        "already has the subscriber `it`",
        "empty",
        "`x` twice",
        "`publish`: ",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[tokio::test]
async fn the_last_state_of_a_type_counts() {
    let (first, second) = (Seen::default(), Seen::default());
    let broker = TestBroker::with([bytes::subscriber()]).state(first.clone()).state(second.clone());
    broker.publish_with(Outgoing::raw("bytes", &b"x"[..])).await.unwrap();
    assert_eq!((first.lock().unwrap().len(), second.lock().unwrap().len()), (0, 1));
}

#[tokio::test]
#[should_panic(expected = "must come before the first message")]
async fn a_state_after_the_first_message_is_refused() {
    let broker = TestBroker::with([it(|| ())]);
    broker.publish("q", &7).await.unwrap();
    let _ = broker.state(Mailer);
}

#[tokio::test]
async fn a_broker_without_handlers_keeps_what_is_published_and_one_of_an_app_says_what_is_missing()
{
    let broker = TestBroker::with([]);
    broker.publish("q", &7).await.unwrap();
    broker.run_until_idle().await;
    assert_eq!(broker.rows().iter().map(|row| row.queue.as_str()).collect::<Vec<_>>(), ["q"]);
    let broker = TestBroker::of(&outbox::App::from_env().only([]));
    assert!(broker.publish("q", &7).await.unwrap_err().to_string().contains("no subscriber"));
}

type Words = Arc<Mutex<Vec<String>>>;

struct Tenant(String);

impl outbox::FromContext for Tenant {
    type Rejection = &'static str;

    async fn from_context(ctx: &Context) -> Result<Self, &'static str> {
        ctx.headers().get("tenant").map(|name| Self(name.to_owned())).ok_or("no tenant is named")
    }
}

#[subscriber("optional")]
async fn optional(
    _: u64,
    tenant: Option<Tenant>,
    why: Result<Tenant, &'static str>,
    mailer: Option<State<Mailer>>,
    State(words): State<Words>,
) {
    let why = why.map_or_else(str::to_owned, |tenant| tenant.0);
    let tenant = tenant.map(|tenant| tenant.0);
    words.lock().unwrap().push(format!("{tenant:?} {why} {}", mailer.is_some()));
}

#[tokio::test]
async fn what_may_be_missing_is_an_option_or_a_result() {
    let words = Words::default();
    let broker = TestBroker::with([optional::subscriber()]).state(Arc::clone(&words));
    broker.publish("optional", &7).await.unwrap();
    broker.publish_with(Outgoing::new("optional", &7).header("tenant", "blue")).await.unwrap();
    let words = words.lock().unwrap();
    assert_eq!(*words, ["None no tenant is named false", "Some(\"blue\") blue false"]);
}

#[tokio::test]
async fn the_fence_grows_with_every_claim() {
    let fences = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&fences);
    let subscriber = Subscriber::new("it", "q", move |ctx: Context| {
        seen.lock().unwrap().push(ctx.fence());
        let snoozed = ctx.fence() % 2 == 0;
        async move { if snoozed { Outcome::Snooze(Duration::from_micros(1)) } else { Outcome::Nack } }
    });
    let broker = TestBroker::with([subscriber]);
    broker.publish("q", &7).await.unwrap();
    for _ in 0..5 {
        broker.advance(Duration::from_secs(600)).await;
    }
    let fences = fences.lock().unwrap();
    assert!(fences.len() > 4 && fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}
