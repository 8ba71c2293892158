//! Runs a flow through all faults, several cases at a time.

use std::sync::Arc;
use std::time::Instant;

use outbox_tests::db::Db;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};

use super::fault::{Counts, Fault};

/// More of a run that was not what it was to be.
const TRIES: usize = 5;

/// Cases at a time: most of them wait.
const AT_ONCE: usize = 8;

/// What is swept.
pub trait Flow: Copy + Send + 'static {
    /// It holds a lease.
    const LEASED: bool;

    /// Fewer messages, and the flow is not what it was.
    fn floor(self) -> Counts;

    /// So many cases there are at least.
    fn cases(self) -> usize {
        Fault::all(self.floor(), Self::LEASED).len()
    }

    /// Runs it once, and checks what it left behind.
    fn play(self, database: PgConnectOptions, fault: Option<Fault>)
    -> impl Future<Output = Played>;
}

/// A case that passed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Played {
    pub counts: Counts,
    /// Handlers ran more often than without the fault.
    pub again: bool,
    /// The fault happened: that message was sent.
    pub struck: bool,
    /// The connection was given up before all messages were sent, and no fault had struck.
    pub is_early: bool,
}

/// Panics with the faults that were not survived.
pub async fn sweep<F: Flow>(db: &Db, flow: F, name: &str) {
    let database = (*db.pg().connect_options()).clone().application_name("sweep");
    let begun = Instant::now();
    let (counts, floor) = (least(flow, &database).await, flow.floor());
    assert!(
        counts.sent >= floor.sent && counts.answered >= floor.answered,
        "{name}: {counts:?}, which is less than {floor:?}"
    );
    let faults = Fault::all(counts, F::LEASED);
    let total = faults.len();
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut cases = JoinSet::new();
    for fault in faults {
        let (places, database) = (Arc::clone(&places), database.clone());
        cases.spawn(async move {
            let _place = places.acquire_owned().await.unwrap();
            println!("{fault}");
            (fault, tokio::spawn(struck(flow, database, fault)).await)
        });
    }
    let (mut failed, mut again) = (Vec::new(), 0);
    while let Some(ended) = cases.join_next().await {
        match ended.unwrap() {
            (_, Ok(played)) => again += usize::from(played.again),
            (fault, Err(_)) => failed.push(fault.to_string()),
        }
    }
    failed.sort();
    println!(
        "{name}: {} messages and {} answers, {total} cases in {:.1} s, {again} with another run",
        counts.sent,
        counts.answered,
        begun.elapsed().as_secs_f64()
    );
    assert!(failed.is_empty(), "{name}: {} of {total} cases failed: {failed:?}", failed.len());
}

/// Messages of a run without a fault. Their number differs a little where connections of
/// a pool are opened as they are needed: so many there always are.
async fn least(flow: impl Flow, database: &PgConnectOptions) -> Counts {
    let mut least = Counts { sent: usize::MAX, answered: usize::MAX };
    let mut plain = 0;
    for _ in 0..3 + TRIES {
        let played = on_a_thread_of_its_own(flow, database.clone(), None).await;
        if played.is_early {
            continue;
        }
        least.sent = least.sent.min(played.counts.sent);
        least.answered = least.answered.min(played.counts.answered);
        plain += 1;
        if plain == 3 {
            return least;
        }
    }
    panic!("{plain} of {} runs without a fault were whole", 3 + TRIES)
}

/// A case in which the fault happened.
async fn struck(flow: impl Flow, database: PgConnectOptions, fault: Fault) -> Played {
    for _ in 0..TRIES {
        let played = on_a_thread_of_its_own(flow, database.clone(), Some(fault)).await;
        if played.struck {
            return played;
        }
    }
    panic!("{fault}: the fault never happened");
}

/// On a runtime of one thread: what wakes together runs in turn, and the same fault
/// meets the same message each time.
async fn on_a_thread_of_its_own(
    flow: impl Flow,
    database: PgConnectOptions,
    fault: Option<Fault>,
) -> Played {
    let play = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(flow.play(database, fault))
    };
    match spawn_blocking(play).await {
        Ok(played) => played,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
