//! Tests with rows that ran alone, and whose settlements take a while: their tokens still say
//! "alone", and would condemn them for what others do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::locked::ANSWERED;
use super::marked::claimed_suspect;
use super::unanswered::{Claims, HOUR, TTL, Unanswered, holding};
use crate::Outgoing;
use crate::engine::extend::keep;
use crate::engine::later::settle;
use crate::engine::settling::Settling;
use crate::engine::{Few, Reader, Shared, deliver};
use crate::extract::States;
use crate::store::is_alone;
use crate::store::memory::MemoryStore;
use crate::subscriber::{AckPolicy, Subscriber};
use crate::telemetry::Stats;

/// A suspect of the subscriber runs alone.
async fn ran(
    shared: &Shared<Unanswered>,
    store: &MemoryStore,
    subscriber: Subscriber,
) -> Few<Box<Settling>> {
    let mut job = claimed_suspect(store).await;
    job.deadline = Instant::now() + HOUR;
    let subscriber = subscriber.max_deliveries(1).lease_ttl(TTL);
    let (states, counts) = (States::default(), Stats::default());
    let reader = Arc::new(Reader::new(subscriber, shared, &states, &counts, &Arc::default()));
    tokio::select! {
        settled = deliver(shared, &reader, smallvec::smallvec![job], Instant::now(), None) => settled,
        () = keep(&shared.leases, &shared.store, TTL) => unreachable!("it goes on"),
    }
}

async fn write(shared: &Shared<Unanswered>, settled: Few<Box<Settling>>) {
    settle(&shared.store, settled.into_iter().map(|one| *one).collect()).await;
}

#[tokio::test(start_paused = true)]
async fn no_other_starts_before_a_row_that_ran_alone_is_settled() {
    let store = holding(1).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    let settled =
        ran(&shared, &store, Subscriber::new("s", "q", |_: crate::Context| async {})).await;
    let second = Duration::from_secs(1);
    assert!(timeout(second, shared.quiet.beside_others(1)).await.is_err(), "it is not written");
    write(&shared, settled).await;
    assert!(timeout(second, shared.quiet.beside_others(1)).await.is_ok());
    // Not for ever: the database may be away.
    let store = holding(1).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    let _settled =
        ran(&shared, &store, Subscriber::new("s", "q", |_: crate::Context| async {})).await;
    assert!(timeout(6 * second, shared.quiet.beside_others(1)).await.is_ok());
}

/// Somebody may hold the timer for hours.
#[tokio::test(start_paused = true)]
async fn a_row_that_ran_alone_and_sets_a_timer_is_alone_no_longer_when_it_is_settled() {
    let store = holding(1).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    let handler = |ctx: crate::Context| async move {
        ctx.publisher().collect(Outgoing::new("later", &1).timer_id("free"))
    };
    let settled = ran(&shared, &store, Subscriber::new("s", "q", handler)).await;
    let token = store.rows()[0].acquired_token.expect("it is leased");
    assert!(!is_alone(token) && settled[0].lease.token == token, "{token}");
    let others = timeout(Duration::from_secs(1), shared.quiet.beside_others(1)).await;
    assert!(others.is_ok(), "nobody waits for the timer");
    drop(others);
    write(&shared, settled).await;
    let queues: Vec<_> = store.rows().into_iter().map(|row| row.queue).collect();
    assert_eq!(queues, ["later"]);
}

fn unreachable_unless_acked() {
    panic!("its row is not gone");
}

/// Nothing of it has run.
#[tokio::test(start_paused = true)]
async fn a_suspect_that_is_not_acked_first_when_the_drain_is_over_is_given_back() {
    let store = holding(1).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    shared.store.asked.releases.store(ANSWERED, Ordering::SeqCst);
    let handler = |_: crate::Context| async { unreachable_unless_acked() };
    let subscriber = Subscriber::new("s", "q", handler).ack(AckPolicy::AckFirst);
    shared.store.asked.acks.store(true, Ordering::SeqCst);
    let others = async {
        sleep(TTL * 5 / 2).await;
        assert!(store.rows()[0].acquired_token.is_some_and(is_alone), "it waits to be acked");
        shared.stop.cancel();
        shared.cut_off.cancel();
        shared.store.asked.acks.store(false, Ordering::SeqCst);
    };
    let (settled, ()) = tokio::join!(ran(&shared, &store, subscriber), others);
    assert!(settled.iter().all(|one| one.report.started.is_none()), "its ack was told of");
    write(&shared, settled).await;
    let row = store.rows().remove(0);
    assert_eq!((row.acquired_token, row.deliveries_count), (None, 0), "as if it had not begun");
}
