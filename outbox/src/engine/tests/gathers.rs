//! A test of handlers of batches that block their threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::unanswered::holding;
use crate::engine::{Engine, Settings, Shared};
use crate::extract::States;
use crate::store::memory::MemoryStore;
use crate::subscriber::{Subscriber, debug_chain};
use crate::telemetry::{Sinks, Stats};

/// Whoever gathers next is woken by the one before, who does not wait from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_batch_that_blocks_its_thread_keeps_the_next_from_nobody() {
    const LIMIT: Duration = Duration::from_secs(10);
    let store = holding(4).await;
    let (inside, both) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (count, met) = (Arc::clone(&inside), Arc::clone(&both));
    let subscriber = Subscriber::batches("s", "q", 2, move |_: Vec<crate::Context>| {
        let (count, met) = (Arc::clone(&count), Arc::clone(&met));
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            let begun = std::time::Instant::now();
            while count.load(Ordering::SeqCst) < 2 && begun.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(1));
            }
            met.fetch_add(count.load(Ordering::SeqCst) / 2, Ordering::SeqCst);
        }
    });
    let subscriber = subscriber.batch_wait(Duration::from_millis(10)).max_workers(2);
    let publisher = crate::Publisher::default();
    let shared = Shared::new(store.clone(), Arc::new(debug_chain), publisher, Sinks::default());
    let settings = Settings { drain_timeout: 2 * LIMIT, sample_every: None };
    let (states, counts) = (States::default(), Stats::default());
    let none = None::<fn() -> MemoryStore>;
    let mut engine = Engine::start(shared, vec![subscriber], &states, &counts, settings, none);
    while !store.rows().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(both.load(Ordering::SeqCst), 2, "each met the other");
    engine.drain().await.unwrap();
}
