//! Tests with acks that set timers which somebody else holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::locked::claimed_for_long;
use super::unanswered::{
    Claims, HOUR, LARGE, TTL, Unanswered, acked, claimed, holding, publishing, reader,
};
use crate::Outgoing;
use crate::engine::Shared;
use crate::engine::later::{Later, settle};
use crate::engine::results::{Results, Sender};
use crate::engine::settle::run;
use crate::engine::settlement::Settlement;
use crate::engine::settling::Settling;
use crate::store::memory::MemoryStore;

/// A store whose timers somebody holds, with the settler of acks that set them.
fn holding_timers(store: &MemoryStore) -> (Arc<Shared<Unanswered>>, Sender, JoinHandle<()>) {
    let shared = Arc::new(Unanswered::new(store, Claims::Answered).shared());
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    shared.store.asked.timers.store(true, Ordering::SeqCst);
    let timers = Arc::<Results>::default();
    let sender = Sender::new(&[Arc::default(), Arc::default(), Arc::clone(&timers)]);
    let settler = tokio::spawn(run(Arc::clone(&shared), timers, None));
    (shared, sender, settler)
}

/// Acks of so many messages, each of which sets a timer of its own.
async fn setting_timers(
    shared: &Shared<Unanswered>,
    store: &MemoryStore,
    limit: usize,
) -> Vec<Settling> {
    let (jobs, reader) = (claimed(store, limit).await, reader(shared, "q", &Arc::default()));
    let mut acks = publishing(&jobs, &reader, &vec![1; limit]);
    for ack in &mut acks {
        let name = format!("timer {}", ack.lease.id);
        set(ack, &name);
    }
    acks
}

fn set(ack: &mut Settling, name: &str) {
    let Settlement::Ack { messages } = &mut ack.settlement else { unreachable!("it acks") };
    messages[0].timer_id = Some(name.into());
}

/// Their rows are free, and there is no end of them. Each of them would be written anew whenever
/// one of them is tried, and handled again when its lease is over.
#[tokio::test(start_paused = true)]
async fn acks_that_wait_for_a_timer_slow_their_workers_down() {
    const ROWS: usize = 7_000;
    let store = holding(ROWS).await;
    let (shared, sender, settler) = holding_timers(&store);
    let jobs = claimed_for_long(&store, ROWS).await;
    let mut acks = publishing(&jobs, &reader(&shared, "q", &Arc::default()), &vec![1; ROWS]);
    for ack in &mut acks {
        set(ack, "t");
    }
    let sent = AtomicUsize::new(0);
    let sending = async {
        for ack in acks {
            sender.send(Box::new(ack)).await;
            sent.fetch_add(1, Ordering::SeqCst);
        }
    };
    let held = async {
        sleep(10 * TTL).await;
        shared.store.asked.timers.store(false, Ordering::SeqCst);
        (sent.load(Ordering::SeqCst), shared.store.asked.publishing.load(Ordering::SeqCst))
    };
    let (sent, tries) = tokio::join!(sending, held).1;
    assert!(sent < ROWS, "{sent} were taken on");
    assert!(tries < 40, "{tries}: not only the first of them was tried");
    drop(sender);
    settler.await.unwrap();
    assert_eq!(store.rows().len(), 1, "the timer");
}

/// Also of those that their settler has not taken yet.
#[tokio::test(start_paused = true)]
async fn the_leases_of_acks_that_wait_for_a_timer_go_on_however_many_there_are() {
    const ROWS: usize = 3_000;
    let store = holding(ROWS).await;
    let (shared, sender, settler) = holding_timers(&store);
    for mut ack in setting_timers(&shared, &store, ROWS).await {
        set(&mut ack, "t");
        sender.send(Box::new(ack)).await;
    }
    // The server has no time for so many extensions.
    shared.store.asked.most.store(900, Ordering::SeqCst);
    for _ in 0..20 {
        sleep(TTL / 2).await;
        assert_eq!(claimed(&store, ROWS).await.len(), 0, "nobody else gets them");
    }
    shared.store.asked.timers.store(false, Ordering::SeqCst);
    drop(sender);
    settler.await.unwrap();
    assert_eq!(store.rows().len(), 1, "the timer");
}

/// To find out which timers somebody holds takes a wait of each. The others wait for few of them.
#[tokio::test(start_paused = true)]
async fn an_ack_that_sets_a_timer_waits_for_few_that_somebody_else_holds() {
    let store = holding(101).await;
    let (shared, sender, settler) = holding_timers(&store);
    for ack in setting_timers(&shared, &store, 90).await {
        sender.send(Box::new(ack)).await;
    }
    sleep(50 * TTL).await;
    // It comes with some that nobody has tried before.
    let mut new = setting_timers(&shared, &store, 11).await;
    set(&mut new[10], "free");
    for ack in new {
        sender.send(Box::new(ack)).await;
    }
    let sent = Instant::now();
    let written = || store.rows().iter().filter(|row| row.queue == "copies").count();
    while written() == 0 {
        assert!(sent.elapsed() < 5 * TTL, "it waits for all of the others");
        sleep(TTL / 10).await;
    }
    sleep(10 * TTL).await;
    assert_eq!(written(), 1);
    shared.store.asked.timers.store(false, Ordering::SeqCst);
    drop(sender);
    settler.await.unwrap();
    assert_eq!(written(), 101, "none was given up");
}

/// Its lease goes on only as long as somebody has the timer.
#[tokio::test(start_paused = true)]
async fn an_ack_that_sets_a_timer_and_waits_for_nobody_is_given_up_with_its_lease() {
    for unanswered in [false, true] {
        let store = holding(1).await;
        let shared = Unanswered::new(&store, Claims::Answered).shared();
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
        shared.store.asked.most_timers.store(unanswered.into(), Ordering::SeqCst);
        let mut acks = setting_timers(&shared, &store, 1).await;
        if unanswered {
            let Settlement::Ack { messages } = &mut acks[0].settlement else { unreachable!() };
            messages[0].payload = vec![0; LARGE + 1].into();
        }
        let begun = Instant::now();
        let landed = timeout(HOUR, settle(&shared.store, acks)).await;
        assert_eq!((landed, store.rows().len()), (Ok(0), 1));
        assert!(begun.elapsed() < 2 * TTL, "{:?}", begun.elapsed());
    }
}

/// The first waits for an answer, and not for the timer.
#[tokio::test(start_paused = true)]
async fn an_ack_that_waits_for_no_timer_holds_up_no_other_that_sets_the_same() {
    let store = holding(2).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    let mut acks = setting_timers(&shared, &store, 2).await;
    for ack in &mut acks {
        set(ack, "t");
    }
    let Settlement::Ack { messages } = &mut acks[0].settlement else { unreachable!() };
    messages[0].payload = vec![0; LARGE + 1].into();
    acks[0].until(Instant::now() + HOUR);
    let written = async {
        sleep(2 * TTL).await;
        store.rows().iter().filter(|row| row.queue == "copies").count()
    };
    let (settled, written) = tokio::join!(timeout(3 * TTL, settle(&shared.store, acks)), written);
    assert!(settled.is_err() && written == 1, "{settled:?}, {written}");
}

/// One by one, each would take a statement of its own.
#[tokio::test(start_paused = true)]
async fn acks_that_set_timers_and_for_which_the_server_has_no_time_at_once_are_written_in_parts() {
    let store = holding(100).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    shared.store.asked.most_timers.store(10, Ordering::SeqCst);
    let mut acks = setting_timers(&shared, &store, 100).await;
    for ack in &mut acks {
        ack.until(Instant::now() + HOUR);
    }
    assert_eq!(settle(&shared.store, acks).await, 100);
    let tries = shared.store.asked.publishing.load(Ordering::SeqCst);
    assert!(tries < 60, "{tries} statements");
}

/// The other one would find it still there, and set none.
#[tokio::test(start_paused = true)]
async fn of_acks_that_waited_that_of_a_timer_comes_before_the_one_that_sets_it_again() {
    let store = MemoryStore::new(true);
    let mut tx = store.begin();
    for message in [Outgoing::new("q", &1), Outgoing::new("q", &1).timer_id("t")] {
        crate::Publisher::default().send(&mut tx, message).await.unwrap();
    }
    tx.commit();
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    let (jobs, reader) = (claimed(&store, 2).await, reader(&shared, "q", &Arc::default()));
    let mut sets = publishing(&jobs[..1], &reader, &[1]);
    let Settlement::Ack { messages } = &mut sets[0].settlement else { unreachable!() };
    (messages[0].queue, messages[0].timer_id) = ("q".into(), Some("t".into()));
    let mut later = Later::new(CancellationToken::new());
    // The next time acks are tried one by one.
    later.again(&shared.store).await;
    later.add(sets);
    later.add(acked(&jobs[1..], &reader));
    assert_eq!(later.again(&shared.store).await, 2);
    assert_eq!(store.rows().len(), 1, "the timer is set again");
}
