//! Extends the leases of running handlers, and gives up those that cannot be extended. The lease
//! task runs [`run`]; the watchdog calls [`extend`] while that task is blocked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout_at};

use super::Shared;
use super::lease::{Due, Kind, LONG, Leases, beat, pace};
use crate::extract::Context;
use crate::store::{Extend, Lease, Store};
use crate::telemetry::{TARGET, warn};

/// The lease task: extends until dropped. The shortest lease of the process sets the pace.
pub(super) async fn run<S: Store>(shared: Arc<Shared<S>>, shortest: Duration) {
    // The signs of life come from beside the statements: a database that is slow to answer must not
    // look like a task that does not run.
    let mut beats = interval(beat(shortest));
    let beating = async {
        loop {
            beats.tick().await;
            shared.leases.look_after(Instant::now());
        }
    };
    tokio::select! {
        biased;
        () = beating => {}
        () = keep(&shared.leases, &shared.store, shortest) => {}
    }
}

/// Extends until dropped, and cancels the runs whose leases are lost.
pub(crate) async fn keep<S: Store>(leases: &Leases, store: &S, shortest: Duration) {
    let mut ticks = interval(pace(shortest));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let extending = async {
        let (mut under_way, mut busy) = (FuturesUnordered::new(), BTreeSet::new());
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => {}
                () = leases.hurry.notified() => {}
                Some((kind, answered)) = under_way.next() => {
                    busy.remove(&kind);
                    if answered {
                        continue;
                    }
                }
            }
            tell_of_long(leases);
            for kind in leases.kinds_due(Instant::now()) {
                if busy.insert(kind) {
                    under_way.push(extend_kind(leases, store, kind));
                }
            }
        }
    };
    // Beside each other: one lease may run out while another waits for the database.
    tokio::select! {
        biased;
        () = leases.watch(pace(shortest)) => {}
        () = extending => {}
    }
}

/// Logs long runs. Several messages of one subscriber, such as a batch, are logged once.
fn tell_of_long(leases: &Leases) {
    let mut long = BTreeMap::<_, Vec<_>>::new();
    for context in leases.long(Instant::now()) {
        long.entry(context.subscriber()).or_default().push(context);
    }
    for contexts in long.into_values() {
        tell_of_hanging(&contexts);
    }
}

/// Logs that the handler of these messages has been running for [`LONG`].
pub(super) fn tell_of_hanging(contexts: &[Context]) {
    let Some(first) = contexts.first() else { return };
    warn!(
        target: TARGET, subscriber = first.subscriber(), row_id = first.id(), rows = contexts.len(),
        "a handler has been running for {}; without a `timeout` nothing ends it",
        humantime::format_duration(LONG)
    );
}

/// Reports leases that were not extended, once for each queue of a subscriber.
fn tell_of_failed<'a>(leases: &Leases, failed: impl IntoIterator<Item = &'a Due>) {
    let mut counts = BTreeMap::<_, usize>::new();
    for one in failed {
        *counts.entry((one.subscriber, &*one.queue)).or_default() += 1;
    }
    for ((subscriber, queue), count) in counts {
        leases.sinks.lease_extension_failed(queue, subscriber, count);
    }
}

/// Extends what is due, once.
pub(super) async fn extend<S: Store>(leases: &Leases, store: &S) {
    let kinds = leases.kinds_due(Instant::now());
    join_all(kinds.into_iter().map(|kind| extend_kind(leases, store, kind))).await;
}

/// How long to wait for an answer when this much is left of a lease. The connection may be dead and
/// the next one alive, so it is a third of what is left: two more tries remain. A short lease is no
/// reason to give up a database that is slow, so with little left it is all of that.
fn patience(left: Duration) -> Duration {
    if left < 3 * SLOW { left } else { left / 3 }
}

/// An error that takes this long counts as no answer.
const WAITED: Duration = Duration::from_secs(1);
/// What a live database may take for an answer.
const SLOW: Duration = Duration::from_secs(3);
/// Before a smaller statement follows one that took too long.
pub(super) const REST: Duration = Duration::from_millis(20);
/// The most leases of one statement.
const BATCH: usize = 1000;

/// Extends the leases of a kind that are due. Returns the kind, and whether there was an answer:
/// without one it is time to look again at once.
async fn extend_kind<S: Store>(leases: &Leases, store: &S, kind: Kind) -> (Kind, bool) {
    let due = leases.to_extend(kind, Instant::now());
    let mut parts: Vec<&[Due]> = due.chunks(BATCH).rev().collect();
    while let Some(part) = parts.pop() {
        let extended = extend_part(leases, store, part).await;
        leases.lose_expired(Instant::now());
        match extended {
            Extended::All => {}
            // The others would fare no better: the next look is for all of them.
            Extended::None { answered } => return (kind, answered),
            Extended::TookTooLong => {
                // Its connection is on the way back to the pool: at once, another one would be
                // opened.
                sleep(REST).await;
                let (one, other) = part.split_at(part.len() / 2);
                parts.extend([other, one]);
            }
        }
    }
    (kind, true)
}

/// What a statement that extends leases came to.
enum Extended {
    /// All that can be: the others are locked or lost.
    All,
    None {
        answered: bool,
    },
    /// The server ended it: it may never have enough time for so many leases.
    TookTooLong,
}

async fn extend_part<S: Store>(leases: &Leases, store: &S, part: &[Due]) -> Extended {
    let now = Instant::now();
    let first_deadline = part.iter().map(|one| one.until).min().unwrap_or(now);
    let extends: Vec<Extend> = part.iter().flat_map(Due::tries).collect();
    let deadline = now + patience(first_deadline.saturating_duration_since(now));
    // If a crash of the server undid the end of a solitude, the row would be condemned.
    let durable = part.iter().any(Due::is_renamed).then(|| store.durable());
    let store = durable.as_ref().unwrap_or(store);
    match timeout_at(deadline, store.extend(&extends)).await {
        Ok(Ok(landed)) => {
            let (mut landed, mut left) = (landed.into_iter(), Vec::new());
            for one in part {
                if one.any(&mut landed) {
                    leases.extended(one, now);
                } else {
                    left.push(one);
                }
            }
            give_up(leases, store, &left, first_deadline).await;
            leases.put_off(left, now);
            Extended::All
        }
        Ok(Err(error)) if error.took_too_long && part.len() > 1 => Extended::TookTooLong,
        Ok(Err(error)) => {
            warn!(target: TARGET, %error, leases = part.len(), "leases could not be extended");
            tell_of_failed(leases, part);
            // SQLite has waited for its lock, and would otherwise miss the moment when it is free.
            let answered = now.elapsed() < WAITED;
            if answered {
                leases.put_off(part, now);
            }
            Extended::None { answered }
        }
        Err(_) => {
            warn!(
                target: TARGET, leases = part.len(),
                "the database does not answer; leases are not extended"
            );
            tell_of_failed(leases, part);
            Extended::None { answered: false }
        }
    }
}

/// Gives up leases that were not extended, except those whose rows are locked. These are reported,
/// and the next tick tries again, until they run out.
async fn give_up<S: Store>(leases: &Leases, store: &S, left: &[&Due], deadline: Instant) {
    if left.is_empty() {
        return;
    }
    let of: Vec<Lease> = left.iter().flat_map(|one| one.tries()).map(|it| it.lease).collect();
    // Without an answer nothing is known of them: they are reported as not extended. Other leases
    // of their kind wait meanwhile.
    let now = Instant::now();
    let deadline = now + patience(deadline.saturating_duration_since(now));
    let Ok(Ok(held)) = timeout_at(deadline, store.held(&of)).await else {
        return tell_of_failed(leases, left.iter().copied());
    };
    let mut held = held.into_iter();
    let (locked, lost): (Vec<&Due>, Vec<_>) = left.iter().partition(|one| one.any(&mut held));
    for one in lost {
        leases.lose(one.key, one.lease);
    }
    if !locked.is_empty() {
        let (leases_locked, row_id) = (locked.len(), locked[0].lease.id);
        warn!(
            target: TARGET, leases = leases_locked, row_id,
            "leases could not be extended: somebody has locked their rows"
        );
        tell_of_failed(leases, locked);
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use tokio::time::sleep_until;

    use super::*;
    use crate::engine::inbox::Job;
    use crate::engine::tests::unanswered::{Claims, Unanswered, claimed, holding, reader};
    use crate::telemetry::Event;

    const TTL: Duration = Duration::from_secs(60);
    const NEVER: u64 = 3_600_000;

    fn of(job: &Job) -> Lease {
        let row = &job.claimed.row;
        Lease { id: row.id, token: row.acquired_token.expect("it is claimed") }
    }

    /// Whether a lease is lost if the database answers nothing for this long.
    async fn is_lost(silence: Duration) -> bool {
        let store = holding(1).await;
        let lease = of(&claimed(&store, 1).await[0]);
        let (leases, context) = (Leases::default(), Context::of_test("{}"));
        let _holding = leases.hold(lease, Instant::now(), TTL, &context);
        let store = Unanswered::new(&store, Claims::Answered);
        store.asked.locked.store(-1, Ordering::SeqCst);
        store.asked.slow.store(NEVER, Ordering::SeqCst);
        tokio::select! {
            () = keep(&leases, &store, TTL) => {}
            () = sleep(silence) => {}
        }
        store.asked.slow.store(0, Ordering::SeqCst);
        tokio::select! {
            () = keep(&leases, &store, TTL) => {}
            () = sleep(TTL) => {}
        }
        context.delivery().watch.is_lost()
    }

    /// An operator's transaction has locked it, and is left open.
    #[tokio::test(start_paused = true)]
    async fn a_lease_whose_row_is_locked_is_told_of_while_it_lasts() {
        let store = holding(1).await;
        let lease = of(&claimed(&store, 1).await[0]);
        let (told, listens) = std::sync::mpsc::channel();
        let mut leases = Leases::default();
        let record = move |event: &Event| {
            let _ = told.send(event.name());
        };
        leases.sinks.add(record, &crate::Stats::default());
        let context = Context::of_test("{}");
        let _holding = leases.hold(lease, Instant::now(), TTL, &context);
        let store = Unanswered::new(&store, Claims::Answered);
        store.asked.locked.store(lease.id, Ordering::SeqCst);
        tokio::select! {
            () = keep(&leases, &store, TTL) => {}
            () = sleep(TTL / 2) => {}
        }
        assert!(!context.delivery().watch.is_lost());
        // In real time, on the recorder's thread.
        let heard = listens.recv_timeout(TTL);
        assert_eq!(heard, Ok("lease_extension_failed"));
    }

    /// What is reported of one attempt to extend the leases 1 and 2 of one queue, 3 of another
    /// queue of the same subscriber, and 4 of another subscriber. The database has locked this row,
    /// and is so slow.
    async fn told(locked: i64, slow: u64) -> Vec<(&'static str, String, usize)> {
        let (told, listens) = std::sync::mpsc::channel();
        let mut leases = Leases::default();
        let record = move |event: &Event| {
            if let Event::LeaseExtensionFailed { queue, subscriber, leases } = event {
                let _ = told.send((*subscriber, queue.to_string(), *leases));
            }
        };
        leases.sinks.add(record, &crate::Stats::default());
        let store = Unanswered::new(&holding(0).await, Claims::Answered);
        store.asked.locked.store(locked, Ordering::SeqCst);
        store.asked.slow.store(slow, Ordering::SeqCst);
        let reader = reader(&store.clone().shared(), "q", &Arc::default());
        let of =
            |queue: &str| Context::unclaimed(7, queue.into(), Bytes::new(), None, &reader.common);
        let contexts = [of("q"), of("q"), of("p"), Context::of_test("{}")];
        let hold = |(context, id)| {
            leases.hold(Lease { id, token: uuid::Uuid::nil() }, Instant::now(), TTL, context)
        };
        let holding: Vec<_> = contexts.iter().zip(1..).map(hold).collect();
        sleep(TTL / 2).await;
        extend(&leases, &store).await;
        drop(holding);
        // The recorder's thread ends with it.
        drop(leases);
        listens.iter().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn leases_that_are_not_extended_are_told_of_by_their_queues_and_subscribers() {
        let all = [("it", "q", 1), ("s", "p", 1), ("s", "q", 2)];
        let all = all.map(|(subscriber, queue, leases)| (subscriber, queue.to_owned(), leases));
        assert_eq!(told(0, 0).await, all, "an error");
        assert_eq!(told(-1, NEVER).await, all, "no answer");
        assert_eq!(told(3, 0).await, all[1..2], "a locked row");
    }

    /// How often the log says that a handler hangs.
    #[derive(Clone, Default)]
    struct Hangs(Arc<AtomicUsize>);

    impl std::io::Write for Hangs {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            let told = String::from_utf8_lossy(line).contains("a handler has been running for 10m");
            self.0.fetch_add(told.into(), Ordering::SeqCst);
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_log_tells_of_a_handler_that_hangs_once_and_after_ten_minutes() {
        let told = Hangs::default();
        let writer = told.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let _logged = tracing::subscriber::set_default(log);
        let store = holding(1).await;
        let lease = of(&claimed(&store, 1).await[0]);
        let (leases, context, begun) = (Leases::default(), Context::of_test("{}"), Instant::now());
        context.delivery().began.set(begun).expect("it has not begun");
        let _holding = leases.hold(lease, begun, TTL, &context);
        let looks = async {
            let mut seen = Vec::new();
            for seconds in [599, 600 + 10, 3600] {
                sleep_until(begun + Duration::from_secs(seconds)).await;
                seen.push(told.0.load(Ordering::SeqCst));
            }
            seen
        };
        let seen = tokio::select! {
            biased;
            () = keep(&leases, &store, TTL) => unreachable!("it goes on until it is dropped"),
            seen = looks => seen,
        };
        assert_eq!(seen, [0, 1, 1]);
    }

    /// As on a dead connection, while the other connections are alive.
    #[tokio::test(start_paused = true)]
    async fn an_extension_without_an_answer_is_tried_again_while_its_lease_lasts() {
        assert!(!is_lost(TTL / 2).await, "the first try is never answered");
        assert!(is_lost(TTL).await);
    }
}
