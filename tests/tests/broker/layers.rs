//! Layers stand around deliveries, routers around subscribers.

use std::sync::{Arc, Mutex};

use outbox::retry::NoRetry;
use outbox::{
    App, Context, FailureReason, HandlerError, HandlerResult, Next, Router, State, subscriber,
};

use super::*;

type Log = Arc<Mutex<Vec<String>>>;

type Running = std::pin::Pin<Box<dyn Future<Output = HandlerResult> + Send>>;

/// A layer that notes when it is entered and left.
fn noting(
    log: &Log,
    name: &'static str,
) -> impl Fn(Context, Next) -> Running + Send + Sync + use<> {
    let log = Arc::clone(log);
    move |ctx, next| {
        let log = Arc::clone(&log);
        Box::pin(async move {
            log.lock().unwrap().push(format!("{name} {}", ctx.queue()));
            let result = next.run(ctx).await;
            log.lock().unwrap().push(format!("{name} {}", result.is_ok()));
            result
        })
    }
}

#[tokio::test]
async fn layers_are_entered_from_the_outermost_in() {
    let log = Log::default();
    let one = it(|| Err::<(), _>("no stock")).layer(noting(&log, "own")).layer(noting(&log, "in"));
    let router = Router::new().layer(noting(&log, "router")).include(one).prefix("eu.");
    let outer = Router::new().include(router).layer(noting(&log, "outer")).prefix("x.");
    let broker = TestBroker::with(outer).layer(noting(&log, "app"));
    broker.publish("x.eu.q", &7).await.unwrap();
    let names = ["app", "outer", "router", "own", "in"];
    let entered = names.iter().map(|name| format!("{name} x.eu.q"));
    let left = names.iter().rev().map(|name| format!("{name} false"));
    assert_eq!(*log.lock().unwrap(), entered.chain(left).collect::<Vec<_>>());
    assert_eq!(broker.rows()[0].attempts_count, 1);
}

async fn only_small(ctx: Context, next: Next) -> HandlerResult {
    if ctx.payload().len() > 5 {
        return Ok(Outcome::reject("too long"));
    }
    next.run(ctx).await
}

#[tokio::test]
async fn a_layer_may_answer_instead_of_the_handler() {
    let broker = TestBroker::with([it(|| -> Outcome { panic!("not reached") })]).layer(only_small);
    broker.publish("q", "long enough").await.unwrap();
    let letter = only_letter(&broker);
    assert_eq!(letter.failure_reason, FailureReason::Rejected);
    assert_eq!(letter.note.as_deref(), Some("too long"));
}

async fn forgiving(ctx: Context, next: Next) -> HandlerResult {
    match next.run(ctx).await {
        Err(error) if error.kind() == "decode" => Ok(Outcome::Ack),
        other => other,
    }
}

#[subscriber("layers: number", retry = NoRetry)]
async fn number(n: u64) -> Result<(), String> {
    if n > 5 { Err("too large".into()) } else { Ok(()) }
}

#[tokio::test]
async fn a_layer_sees_the_error_and_hands_it_on_as_it_is() {
    let broker = TestBroker::with([number::subscriber()]).layer(forgiving);
    broker.publish("layers: number", "no number").await.unwrap();
    assert_eq!(broker.calls("number")[0].ending, Ending::Acked);
    broker.publish("layers: number", &7).await.unwrap();
    let letter = only_letter(&broker);
    assert_eq!(letter.error_kind.as_deref(), Some("String"));
    assert_eq!(letter.last_exception.as_deref(), Some("\"too large\""));
}

async fn failing_layer(_: Context, _: Next) -> HandlerResult {
    Err(HandlerError::new("quota", "the quota is used up"))
}

#[tokio::test]
async fn a_layer_s_own_error_has_its_kind() {
    let broker = TestBroker::with([it(|| ()).retry(NoRetry)]).layer(failing_layer);
    broker.publish("q", &7).await.unwrap();
    assert_eq!(only_letter(&broker).error_kind.as_deref(), Some("quota"));
}

#[tokio::test]
async fn a_panic_in_a_layer_is_a_panic_of_the_delivery() {
    async fn panicking(_: Context, _: Next) -> HandlerResult {
        panic!("in the layer")
    }
    let broker = TestBroker::with([it(|| ()).retry(NoRetry)]).layer(panicking);
    broker.publish("q", &7).await.unwrap();
    assert_eq!(only_letter(&broker).error_kind.as_deref(), Some("panic"));
}

#[derive(Clone)]
struct Region(&'static str);

#[subscriber(["layers: orders", "layers: refunds"])]
async fn region(_: u64, State(region): State<Region>, State(log): State<Log>) {
    log.lock().unwrap().push(region.0.to_owned());
}

#[tokio::test]
async fn a_router_s_state_and_prefix_are_its_own() {
    let log = Log::default();
    let of = |prefix, name| {
        Router::new().prefix(prefix).state(Region(name)).include(region::subscriber())
    };
    let both = Router::new().include(of("eu.", "europe")).include(of("us.", "america"));
    let broker = TestBroker::with(both.state(Region("nowhere"))).state(Arc::clone(&log));
    broker.publish("us.layers: orders", &1).await.unwrap();
    broker.publish("eu.layers: refunds", &1).await.unwrap();
    assert_eq!(*log.lock().unwrap(), ["america", "europe"]);
}

#[tokio::test]
async fn what_is_included_takes_the_place_of_no_other_that_was_named() {
    let of = |prefix| Router::new().prefix(prefix).state(Region("x")).include(region::subscriber());
    let app = App::from_env().only(of("eu.")).include(of("us.")).state(Log::default());
    let broker = TestBroker::of(&app);
    for queue in ["eu.layers: orders", "us.layers: orders"] {
        broker.publish(queue, &1).await.unwrap();
    }
    assert!(broker.rows().is_empty());
}

#[tokio::test]
async fn clashes_are_found_over_all_routers() {
    let one = || Router::new().prefix("eu.").state(Region("x")).include(region::subscriber());
    let other = Subscriber::new("other", "eu.layers: orders", |_| async {});
    let broker = TestBroker::with(one().include(Router::new())).state(Log::default());
    broker.publish("eu.layers: orders", &1).await.unwrap();
    let app = App::from_env().only(one()).include(other).state(Log::default());
    let error = app.start().await.unwrap_err().to_string();
    assert!(error.contains("`eu.layers: orders` already has the subscriber `region`"), "{error}");
}

/// Of each message by itself, though all run at once.
#[tokio::test(start_paused = true)]
async fn a_layer_s_own_timeout_ends_its_message_of_a_batch_and_at_last_the_run() {
    async fn impatient(ctx: Context, next: Next) -> HandlerResult {
        let patience = ctx.decode::<u32>()? * SECOND;
        let late = Ok(Outcome::reject("too slow"));
        tokio::time::timeout(patience, next.run(ctx)).await.unwrap_or(late)
    }
    for (slowest, acked) in [(5_u32, 0), (100, 1)] {
        let ended = Arc::new(Mutex::new(0));
        let count = Arc::clone(&ended);
        let slow = Subscriber::batches("slow", "q", 3, move |_: Vec<Context>| {
            let count = Arc::clone(&count);
            async move {
                tokio::time::sleep(60 * SECOND).await;
                *count.lock().unwrap() += 1;
            }
        });
        let broker = TestBroker::with([slow]).layer(impatient);
        let begun = tokio::time::Instant::now();
        let messages = [1, 2, slowest].map(|patience| outbox::Outgoing::new("q", &patience));
        broker.publish_batch(messages).await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), u64::from(slowest.min(60)));
        assert_eq!((broker.dlq_rows().len(), *ended.lock().unwrap()), (3 - acked, acked));
    }
}

/// A neighbour that panics, or takes longer than its timeout, changes nothing of it.
#[tokio::test(start_paused = true)]
async fn what_a_layer_has_answered_stands_when_the_handler_of_the_batch_fails() {
    async fn by_day(ctx: Context, next: Next) -> HandlerResult {
        if ctx.payload() == b"1" {
            return Ok(Outcome::Snooze(3600 * SECOND));
        }
        next.run(ctx).await
    }
    for (panics, kind) in [(true, "panic"), (false, "timeout")] {
        let failing = Subscriber::batches("all", "q", 2, move |_: Vec<Context>| async move {
            assert!(!panics, "as told");
            tokio::time::sleep(60 * SECOND).await;
        });
        let failing = failing.timeout(SECOND).retry(NoRetry).batch_wait(SECOND);
        let broker = TestBroker::with([failing]).layer(by_day);
        broker.publish_batch([1, 2].map(|n| outbox::Outgoing::new("q", &n))).await.unwrap();
        let (letters, rows) = (broker.dlq_rows(), broker.rows());
        let dead = letters.iter().map(|it| (&it.payload[..], it.error_kind.as_deref()));
        assert_eq!(dead.collect::<Vec<_>>(), [(&b"2"[..], Some(kind))]);
        assert_eq!((rows.len(), &rows[0].payload[..], rows[0].attempts_count), (1, &b"1"[..], 0));
    }
}
