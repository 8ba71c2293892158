//! The handlers: every way to end, with the lease live or run out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::retry::Constant;
use outbox::{BatchOutcome, BoxError, Context, HandlerError, Outcome, Outgoing, Subscriber};
use tokio::time::sleep;

use crate::journal::{How, Journal};

pub const LEASE: Duration = Duration::from_secs(3);
pub const SNOOZE: Duration = Duration::from_millis(500);
pub const RETRY: Duration = Duration::from_secs(2);
pub const ATTEMPTS: u64 = 3;
pub const DELIVERIES: u64 = 2;
/// The queue that has such a limit.
pub const SUSPECT: &str = "suspect";
pub const POLL: Duration = Duration::from_secs(5);

const MS: Duration = Duration::from_millis(1);

/// The text of a panic that is meant.
pub const MEANT: &str = "meant to panic";

/// The queues, one subscriber each.
pub const QUEUES: [&str; 12] = [
    "ok",
    "publish",
    "buffered",
    "slow",
    "slow-fail",
    "fail",
    "panic",
    "reject",
    "snooze",
    "timer",
    "batch",
    "suspect",
];

/// The subscriber of a queue.
pub fn subscriber(queue: &'static str, journal: &Journal) -> Subscriber {
    let short = |n: u64| (n * 7 % 50) as u32 * MS;
    let subscriber = match queue {
        "publish" => one(queue, journal, move |context, n| async move {
            sleep(short(n)).await;
            let timer = Outgoing::new("timer", &n).timer_id(format!("after {}", context.id()));
            context.publisher().collect(Outgoing::new("ok", &n))?;
            context.publisher().collect(timer.delay(RETRY))?;
            Ok(Outcome::Ack)
        }),
        // Those that wait for it wait too long.
        "buffered" => one(queue, journal, |_, _| async {
            sleep(LEASE * 2 / 5).await;
            Ok(Outcome::Ack)
        })
        .max_workers(1),
        "slow" => one(queue, journal, |_, n| async move {
            sleep(LEASE / 2 * (n % 5) as u32).await;
            Ok(Outcome::Ack)
        }),
        "slow-fail" => one(queue, journal, |_, n| async move {
            sleep(LEASE / 2 * (n % 5) as u32).await;
            Err("slow and in vain".into())
        }),
        "fail" => one(queue, journal, move |_, n| async move {
            sleep(short(n)).await;
            Err("in vain".into())
        }),
        "panic" => one(queue, journal, move |context, n| async move {
            sleep(short(n)).await;
            if context.attempts() == 0 { Ok(Outcome::reject(MEANT)) } else { Ok(Outcome::Ack) }
        }),
        "reject" => one(queue, journal, |_, n| async move {
            sleep(LEASE / 2 * (n % 5) as u32).await;
            Ok(Outcome::reject("no"))
        }),
        "snooze" => snoozing(journal),
        "batch" => batches(journal),
        SUSPECT => one(queue, journal, |_, _| async {
            sleep(LEASE / 5).await;
            Ok(Outcome::Ack)
        })
        .max_deliveries(DELIVERIES),
        _ => one(queue, journal, move |_, n| async move {
            sleep(short(n)).await;
            Ok(Outcome::Ack)
        })
        .max_workers(3),
    };
    subscriber
        .lease_ttl(LEASE)
        .min_poll(POLL / 5)
        .max_poll(POLL)
        .retry(Constant::new(RETRY).max_attempts(ATTEMPTS))
}

/// A handler that comes to what `work` says of the message. A rejection that is meant
/// as a panic is one.
fn one<W, F>(queue: &'static str, journal: &Journal, work: W) -> Subscriber
where
    W: Fn(Context, u64) -> F + Copy + Send + Sync + 'static,
    F: Future<Output = Result<Outcome, BoxError>> + Send + 'static,
{
    let journal = journal.clone();
    let handler = move |context: Context| {
        let running = journal.runs(&context);
        async move {
            let n = context.decode().unwrap();
            let result = work(context, n).await;
            let how = match &result {
                Err(_) | Ok(Outcome::Nack) => How::Failed,
                Ok(Outcome::Reject(why)) if why == MEANT => How::Panicked,
                Ok(Outcome::Reject(_)) => How::Rejected,
                Ok(Outcome::Snooze(_)) => How::Snoozed,
                Ok(_) => How::Done,
            };
            running.ends(how);
            assert!(how != How::Panicked, "{MEANT}");
            result
        }
    };
    Subscriber::new(queue, queue, handler).max_workers(2)
}

/// Each message twice.
fn snoozing(journal: &Journal) -> Subscriber {
    let snoozed = Arc::new(Mutex::new(HashMap::<i64, u32>::new()));
    let journal = journal.clone();
    Subscriber::new("snooze", "snooze", move |context: Context| {
        let running = journal.runs(&context);
        let snoozed = Arc::clone(&snoozed);
        async move {
            sleep(MS).await;
            let again = {
                let mut snoozed = snoozed.lock().unwrap();
                let times = snoozed.entry(context.id()).or_default();
                *times += 1;
                *times <= 2
            };
            running.ends(if again { How::Snoozed } else { How::Done });
            if again { Outcome::Snooze(SNOOZE) } else { Outcome::Ack }
        }
    })
    .max_workers(2)
}

/// Of each run, the messages with an odd number fail once; every fifth is rejected.
fn batches(journal: &Journal) -> Subscriber {
    let journal = journal.clone();
    let handler = move |contexts: Vec<Context>| {
        let running: Vec<_> = contexts.iter().map(|context| journal.runs(context)).collect();
        async move {
            sleep(LEASE / 10).await;
            let mut outcome = BatchOutcome::default();
            for (context, running) in contexts.iter().zip(running) {
                let n: u64 = context.decode()?;
                if n.is_multiple_of(5) {
                    outcome.set(context, Outcome::reject("a fifth"));
                    running.ends(How::Rejected);
                } else if n % 2 == 1 && context.attempts() == 0 {
                    outcome.set(context, Err::<(), _>("odd"));
                    running.ends(How::Failed);
                } else {
                    running.ends(How::Done);
                }
            }
            Ok::<_, HandlerError>(outcome)
        }
    };
    Subscriber::batches("batch", "batch", 4, handler).max_workers(2).batch_wait(20 * MS)
}
