//! A later claim of a row has a higher number, and so has whoever holds its lease.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use outbox::retry::NoRetry;
use outbox::{Outcome, Router, State};
use outbox_tests::wait::unless_stalled;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;

on_all!(
    the_fence_grows_with_every_run_whatever_the_last_came_to,
    a_handler_five_times_as_long_as_its_lease_is_delivered_once,
    a_handler_whose_lease_is_stolen_is_cancelled_within_a_second,
    a_plain_fn_sees_within_a_second_that_its_lease_is_stolen,
);

const SECOND: Duration = Duration::from_secs(1);

/// Snoozes of no time at all: no count tells their claims apart.
async fn the_fence_grows_with_every_run_whatever_the_last_came_to(stage: &Stage) {
    let fences = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&fences);
    let changing = it(move |ctx| {
        let mut seen = seen.lock().unwrap();
        seen.push((ctx.fence(), ctx.deliveries()));
        match seen.len() {
            12 => Outcome::Ack,
            n if n % 3 == 0 => Outcome::Nack,
            _ => Outcome::Snooze(Duration::ZERO),
        }
    });
    let play = stage.play(changing.retry(Constant::new(Duration::from_micros(1))), [seven()]).await;
    play.gone().await;
    play.end().await.is_empty();
    let fences = fences.lock().unwrap();
    let deliveries: Vec<_> = fences.iter().map(|(_, deliveries)| *deliveries).collect();
    assert_eq!(deliveries, [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4], "a snooze takes its back");
    assert!(fences.is_sorted_by(|a, b| a.0 < b.0), "{fences:?}");
}

async fn a_handler_five_times_as_long_as_its_lease_is_delivered_once(stage: &Stage) {
    const TTL: Duration = Duration::from_secs(4);
    let case = async || {
        let long = Subscriber::new("it", "q", |ctx: Context| async move {
            if ctx.deliveries() > 1 {
                return;
            }
            let first = ctx.lease_deadline();
            tokio::time::sleep(20 * SECOND).await;
            assert!(!ctx.cancelled().is_cancelled() && ctx.lease_deadline() >= first + 16 * SECOND);
            assert!(ctx.lease_deadline() <= Instant::now() + TTL, "it is longer than its time");
        });
        let scene = stage.first(long.lease_ttl(TTL).retry(NoRetry), seven()).await;
        let stats = &scene.stats;
        let counts = (stats.dispatched, stats.acked, stats.lease_lost);
        (counts, stats.run_time >= 20 * SECOND, scene.rows.len() + scene.letters.len())
    };
    promised(stage, SECOND, ((1, 1, 0), true, 0), case).await;
}

/// A lease is lost by a half of it in which nothing runs, or its theft is seen too late: what
/// failed beside a stall is run again.
async fn promised<T: Debug + PartialEq>(
    stage: &Stage,
    stall: Duration,
    expected: T,
    case: impl AsyncFn() -> T,
) {
    let (ping, clear) = (async || stage.ping().await, async || stage.clear().await);
    unless_stalled(stall, expected, ping, clear, case).await;
}

/// Tells the test that its future is gone.
struct Gone(Arc<Notify>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn a_handler_whose_lease_is_stolen_is_cancelled_within_a_second(stage: &Stage) {
    let case = async || {
        let (begun, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (told, dropped) = (Arc::clone(&begun), Arc::clone(&gone));
        let token = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&token);
        let endless = Subscriber::new("it", "q", move |ctx: Context| {
            let gone = Gone(Arc::clone(&gone));
            *token.lock().unwrap() = Some(ctx.cancelled().clone());
            begun.notify_one();
            async move {
                let _gone = gone;
                std::future::pending::<()>().await;
            }
        });
        let (mut took, mut cancelled) = (Duration::MAX, false);
        let scene = stage.stolen_while_it_runs(endless.lease_ttl(SECOND), &told, async {
            let begun = Instant::now();
            dropped.notified().await;
            took = begun.elapsed();
            cancelled = kept.lock().unwrap().as_ref().unwrap().is_cancelled();
        });
        let scene = scene.await;
        let counts = (scene.stats.dispatched, scene.stats.lease_lost);
        let row = scene.row();
        ((took < SECOND, cancelled), counts, (row.attempts, row.deliveries))
    };
    // The row is as the thief has it.
    promised(stage, SECOND / 6, ((true, true), (1, 1), (0, 1)), case).await;
}

/// What a plain fn and the test tell each other.
#[derive(Clone, Default)]
struct Told {
    begun: Arc<Notify>,
    over: Arc<Notify>,
}

#[outbox::subscriber("q", lease_ttl = "1s")]
fn stubborn(_: i64, ctx: Context, State(told): State<Told>) {
    told.begun.notify_one();
    let end = Instant::now() + 20 * SECOND;
    while !ctx.cancelled().is_cancelled() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    if ctx.cancelled().is_cancelled() {
        told.over.notify_one();
    }
}

async fn a_plain_fn_sees_within_a_second_that_its_lease_is_stolen(stage: &Stage) {
    let case = async || {
        let told = Told::default();
        let with_state = Router::new().state(told.clone()).include(stubborn::subscriber());
        let subscriber = with_state.into_iter().next().unwrap();
        let mut took = Duration::MAX;
        let scene = stage.stolen_while_it_runs(subscriber, &told.begun, async {
            let begun = Instant::now();
            told.over.notified().await;
            took = begun.elapsed();
        });
        let scene = scene.await;
        let counts = (scene.stats.lease_lost, scene.stats.acked);
        (took < SECOND, counts, scene.row().attempts)
    };
    // The row is as the thief has it.
    promised(stage, SECOND / 6, (true, (1, 0), 0), case).await;
}
