//! A handler that never ends and never awaits holds one thread of the runtime, and with it
//! whatever that thread was to run next. No loop of the app may be among that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use outbox::{Context, Outgoing, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::probe;
use outbox_tests::wait::eventually;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep, timeout};

/// Around the places at which a worker tells the claimer that there is room.
const TURNS: std::ops::Range<i64> = 0..24;
/// Whoever is held with the thread is held for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Holds its thread until the test is over.
fn blocks(looping: &AtomicBool, over: &AtomicBool) {
    looping.store(true, Ordering::SeqCst);
    while !over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Messages of another queue that are handled while the `fatal`th of 40 never ends, and rows
/// that are left beside that one and those behind it.
async fn beside(fatal: i64, over: Arc<AtomicBool>) -> (usize, i64) {
    let db = Db::sqlite().await.unwrap();
    let looping = Arc::new(AtomicBool::new(false));
    let loops = Arc::clone(&looping);
    let one = Subscriber::new("one", "q", move |ctx: Context| {
        let (loops, over) = (Arc::clone(&loops), Arc::clone(&over));
        async move {
            if ctx.decode::<i64>().unwrap() == fatal {
                blocks(&loops, &over);
            }
        }
    });
    let (other, probe) = probe::free("other", "other");
    db.send_all((0..40).map(|n| Outgoing::new("q", &n))).await;
    let app = db.app().only([one.max_workers(1).fetch_batch(10), other]);
    let running = app.drain_timeout(Duration::ZERO).start().await.unwrap();
    eventually("it loops", async || looping.load(Ordering::SeqCst)).await;
    let mut handled = 0;
    for n in 0..5 {
        db.publish("other", n).await;
        if timeout(PATIENCE, probe.start_ever()).await.is_err() {
            break;
        }
        handled += 1;
    }
    let end = Instant::now() + PATIENCE;
    while db.rows().await > 40 - fatal && Instant::now() < end {
        sleep(Duration::from_millis(10)).await;
    }
    let left = db.rows().await - (40 - fatal);
    drop(running);
    (handled, left)
}

/// On a runtime of its own, of two threads.
fn on_its_own<F: Future>(work: impl FnOnce(Arc<AtomicBool>) -> F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let ended = runtime.block_on(work(Arc::clone(&over)));
    over.store(true, Ordering::SeqCst);
    ended
}

/// A row whose deliveries ended without a word runs alone, and never ends.
async fn alone(over: Arc<AtomicBool>) -> bool {
    let db = Db::sqlite().await.unwrap();
    let looping = Arc::new(AtomicBool::new(false));
    let loops = Arc::clone(&looping);
    let suspect = Subscriber::new("suspect", "q", move |_: Context| {
        let (loops, over) = (Arc::clone(&loops), Arc::clone(&over));
        async move { blocks(&loops, &over) }
    });
    let (other, probe) = probe::free("other", "other");
    db.publish("q", 7).await;
    db.exec(
        "UPDATE outbox SET deliveries_count = 3, acquired_at = 0, acquired_token = zeroblob(16)",
    )
    .await;
    let suspect = suspect.max_deliveries(3).lease_ttl(Duration::from_secs(10));
    let app = db.app().only([suspect, other]).drain_timeout(Duration::ZERO);
    let running = app.start().await.unwrap();
    eventually("it loops", async || looping.load(Ordering::SeqCst)).await;
    db.publish("other", 1).await;
    let started = timeout(PATIENCE, probe.start_ever()).await.is_ok();
    drop(running);
    started
}

/// Of three workers one never ends, with the last of its three rows behind it: the others
/// have that, and all that comes.
async fn two_of_three(over: Arc<AtomicBool>) -> usize {
    let db = Db::sqlite().await.unwrap();
    let looping = Arc::new(AtomicBool::new(false));
    let loops = Arc::clone(&looping);
    let (both, met) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
    let meets = Arc::clone(&met);
    let handler = move |ctx: Context| {
        let (loops, over) = (Arc::clone(&loops), Arc::clone(&over));
        let (both, met) = (Arc::clone(&both), Arc::clone(&meets));
        async move {
            if ctx.decode::<i64>().unwrap() == 0 {
                return blocks(&loops, &over);
            }
            both.wait().await;
            met.fetch_add(1, Ordering::SeqCst);
        }
    };
    let three = Subscriber::new("three", "q", handler).max_workers(3).fetch_batch(10);
    db.send_all((0..3).map(|n| Outgoing::new("q", &n))).await;
    let running = db.app().only([three]).drain_timeout(Duration::ZERO).start().await.unwrap();
    eventually("it loops", async || looping.load(Ordering::SeqCst)).await;
    let end = Instant::now() + PATIENCE;
    while met.load(Ordering::SeqCst) < 2 && Instant::now() < end {
        sleep(Duration::from_millis(10)).await;
    }
    drop(running);
    met.load(Ordering::SeqCst)
}

#[test]
fn a_handler_that_blocks_takes_no_other_worker_with_it() {
    let all: Vec<_> = (0..20).map(|_| thread::spawn(|| on_its_own(two_of_three))).collect();
    let all: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(all.iter().all(|it| *it == 2), "{all:?}");
}

#[test]
fn a_row_that_runs_alone_and_blocks_its_thread_keeps_nobody_from_starting_for_ever() {
    assert!(on_its_own(alone));
}

#[test]
fn a_handler_that_never_ends_takes_no_loop_of_the_app_with_it() {
    let all: Vec<_> =
        TURNS.map(|fatal| thread::spawn(move || on_its_own(|over| beside(fatal, over)))).collect();
    let all: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
    // Of each: five were handled, and whatever was handled is acked.
    assert!(all.iter().all(|it| *it == (5, 0)), "{all:?}");
}
