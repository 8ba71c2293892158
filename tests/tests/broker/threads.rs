//! Handlers that are plain fns run on blocking threads, with the same results.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outbox::{Context, FailureReason, HandlerResult, Next, State, subscriber};
use outbox_tests::wait::eventually;
use tokio::sync::Notify;

use super::*;

#[subscriber("threads: thread", retry = NoRetry)]
fn thread(name: &str, State(seen): State<&'static Mutex<Vec<String>>>) -> Result<(), String> {
    let thread = std::thread::current();
    seen.lock().unwrap().push(format!("{name} on {}", thread.name().unwrap_or("?")));
    match name {
        "fail" => Err("as told".into()),
        "panic" => panic!("as told"),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn a_plain_fn_runs_on_a_blocking_thread_and_is_settled_as_any_other() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let broker = TestBroker::with([thread::subscriber()]).state(&SEEN);
    for name in ["good", "fail", "panic"] {
        broker.publish("threads: thread", name).await.unwrap();
    }
    let here = std::thread::current().name().unwrap_or("?").to_owned();
    let seen = SEEN.lock().unwrap();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|line| !line.ends_with(&here)), "{seen:?}");
    let kinds: Vec<_> =
        broker.dlq_rows().into_iter().map(|row| (row.failure_reason, row.error_kind)).collect();
    let kind = |kind: &str| (FailureReason::RetryTerminal, Some(kind.to_owned()));
    assert_eq!(kinds, [kind("String"), kind("panic")]);
}

static RUNS: AtomicUsize = AtomicUsize::new(0);
static RUNNING: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static TOLD: AtomicUsize = AtomicUsize::new(0);

/// Runs on after its timeout until it is told, and for longer than another timeout.
#[subscriber("threads: stubborn", max_workers = 1, timeout = "20ms", retry = NoRetry)]
fn stubborn(_: u64, ctx: Context) {
    RUNS.fetch_add(1, Ordering::SeqCst);
    MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    let end = Instant::now() + Duration::from_secs(10);
    while !ctx.cancelled().is_cancelled() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    TOLD.fetch_add(usize::from(ctx.cancelled().is_cancelled()), Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(50));
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

static BEGUN: Notify = Notify::const_new();

#[subscriber("threads: patient", retry = NoRetry)]
fn patient(_: u64, ctx: Context, State(told): State<&'static AtomicUsize>) {
    BEGUN.notify_one();
    until_told(&ctx, told);
}

#[subscriber("threads: first", timeout = "20ms", ack = AckFirst)]
fn first(_: u64, ctx: Context, State(told): State<&'static AtomicUsize>) {
    until_told(&ctx, told);
}

/// Says 2 if it was told, 1 if not.
fn until_told(ctx: &Context, told: &AtomicUsize) {
    let end = Instant::now() + Duration::from_secs(10);
    while !ctx.cancelled().is_cancelled() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    told.store(1 + usize::from(ctx.cancelled().is_cancelled()), Ordering::SeqCst);
}

#[tokio::test]
async fn a_plain_fn_that_is_acked_first_hears_of_its_timeout_too() {
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let broker = TestBroker::with([first::subscriber()]).state(&TOLD);
    broker.publish("threads: first", &7).await.unwrap();
    eventually("it has ended", async || TOLD.load(Ordering::SeqCst) > 0).await;
    assert_eq!(TOLD.load(Ordering::SeqCst), 2);
}

/// Or it would go on beside its retry, and keep its place.
#[tokio::test]
async fn a_plain_fn_hears_of_a_layer_that_waits_no_longer() {
    async fn impatient(ctx: Context, next: Next) -> HandlerResult {
        tokio::select! {
            result = next.run(ctx) => result,
            () = BEGUN.notified() => Ok(Outcome::Nack),
        }
    }
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    let plain = patient::subscriber().layer(impatient);
    let broker = TestBroker::with([plain]).state(&HEARD);
    broker.publish("threads: patient", &7).await.unwrap();
    eventually("it has ended", async || HEARD.load(Ordering::SeqCst) > 0).await;
    assert_eq!(HEARD.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_plain_fn_hears_of_its_timeout_and_keeps_its_place_until_it_ends() {
    let broker = TestBroker::with([stubborn::subscriber()]);
    for n in 0..3 {
        broker.publish("threads: stubborn", &n).await.unwrap();
    }
    let kinds: Vec<_> = broker.dlq_rows().into_iter().filter_map(|row| row.error_kind).collect();
    assert_eq!(kinds, ["timeout"; 3]);
    let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
    eventually("all have ended", async || count(&RUNS) >= 3 && count(&RUNNING) == 0).await;
    assert_eq!(MOST.load(Ordering::SeqCst), 1, "max_workers bounds the threads too");
    assert_eq!(RUNS.load(Ordering::SeqCst), 3, "none waits for a place in its own time");
    assert_eq!(TOLD.load(Ordering::SeqCst), 3);
}

#[subscriber("threads: quick", timeout = "20ms", lease_ttl = "1s", retry = NoRetry)]
fn quick(_: u64, State(runs): State<&'static AtomicUsize>) {
    runs.fetch_add(1, Ordering::SeqCst);
}

static GO: AtomicBool = AtomicBool::new(false);

/// Ends when it is let, whatever its time is.
#[subscriber("threads: held", max_workers = 1, timeout = "20ms", lease_ttl = "1s", retry = NoRetry)]
fn held(_: u64) {
    while !GO.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn a_message_that_finds_every_thread_held_is_given_back_and_told_of() {
    let broker = TestBroker::with([held::subscriber()]);
    broker.publish("threads: held", &1).await.unwrap();
    assert_eq!(broker.dlq_rows().len(), 1, "it has timed out, and holds its thread");
    let later = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        GO.store(true, Ordering::SeqCst);
    };
    let (published, ()) = tokio::join!(broker.publish("threads: held", &2), later);
    published.unwrap();
    broker.run_until_idle().await;
    let waited: u64 = broker.stats().subscribers().iter().map(|one| one.waited_too_long).sum();
    assert!(waited > 0);
    assert_eq!((broker.rows().len(), broker.dlq_rows().len()), (0, 1));
}

/// Its blocking threads are one.
fn narrow() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(1).build().unwrap()
}

#[subscriber("threads: roomy", timeout = "1s", retry = NoRetry)]
fn roomy(_: u64, State(runs): State<&'static AtomicUsize>) {
    runs.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn time_in_which_the_runtime_has_no_thread_is_not_the_handler_s() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    narrow().block_on(async {
        let other = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1500)));
        let broker = TestBroker::with([roomy::subscriber()]).state(&RUNS);
        broker.publish("threads: roomy", &7).await.unwrap();
        assert!(other.is_finished());
        assert!(broker.rows().is_empty() && broker.dlq_rows().is_empty(), "it was in time");
        assert_eq!(RUNS.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_plain_fn_whose_lease_is_lost_before_it_has_a_thread_does_not_start() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    narrow().block_on(async {
        let (free, freed) = std::sync::mpsc::channel::<()>();
        let other = tokio::task::spawn_blocking(move || freed.recv());
        let broker = TestBroker::with([quick::subscriber()]).state(&RUNS);
        let lose = async {
            while broker.rows().iter().all(|row| row.acquired_token.is_none()) {
                tokio::task::yield_now().await;
            }
            broker.lose_leases();
        };
        let (published, ()) = tokio::join!(broker.publish("threads: quick", &7), lose);
        published.unwrap();
        free.send(()).unwrap();
        other.await.unwrap().unwrap();
        // It would have been the next one.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(RUNS.load(Ordering::SeqCst), 0);
    });
}
