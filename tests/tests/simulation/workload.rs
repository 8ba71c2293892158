//! One seed: which subscribers there are, what is published and when.

use std::time::Duration;

use fastrand::Rng;
use outbox::testing::TestBroker;
use outbox::{Outgoing, Published, TimerConflict};
use tokio::time::sleep;

use crate::handlers::{LEASE, QUEUES, subscriber};
use crate::journal::{Entry, Journal, What};

/// What is left of a simulation.
pub struct Ran {
    pub journal: Vec<Entry>,
    pub broker: TestBroker,
}

/// Runs a seed to its end.
pub fn run(seed: u64) -> Ran {
    let mut dice = Rng::with_seed(!seed);
    let mut queues = QUEUES;
    dice.shuffle(&mut queues);
    let mut queues = queues[..4].to_vec();
    // What `publish` publishes is handled.
    for wanted in ["ok", "timer"] {
        if queues.contains(&"publish") && !queues.contains(&wanted) {
            queues.push(wanted);
        }
    }
    let journal = Journal::default();
    let broker = TestBroker::with(queues.iter().map(|queue| subscriber(queue, &journal)));
    let (hears, writes) = (journal.clone(), journal.clone());
    TestBroker::simulate(seed).watch(move |told| hears.hear(told)).run(
        broker.clone(),
        async |broker| {
            writes.begin();
            publish(&broker, &queues, &writes, &mut dice).await?;
            // Some end in the middle of their work.
            if dice.u8(..) < 192 {
                broker.run_until_idle().await;
                writes.write(What::Idle);
            }
            Ok::<_, outbox::Error>(())
        },
    );
    Ran { journal: journal.take(), broker }
}

async fn publish(
    broker: &TestBroker,
    queues: &[&'static str],
    journal: &Journal,
    dice: &mut Rng,
) -> outbox::Result<()> {
    for n in 1..=dice.u64(4..=16) {
        let queue = queues[dice.usize(..queues.len())];
        let begun = journal.now();
        let millis = if dice.bool() { 0 } else { dice.u64(1..3000) };
        let delay = Duration::from_millis(millis);
        let mut message = Outgoing::new(queue, &n).delay(delay);
        let timer = (queue == "timer").then(|| format!("t{}", dice.u8(..2)));
        if let Some(name) = &timer {
            message = message.timer_id(name.clone());
            if dice.bool() {
                message = message.on_conflict(TimerConflict::Extend);
            }
        }
        let published = broker.publish_with(message).await?;
        let named = timer.is_some();
        journal.write(What::Published { begun, delay, timer: named, published });
        if let (Some(name), Published::Inserted(id), true) = (&timer, published, dice.bool()) {
            sleep(Duration::from_millis(dice.u64(..2000))).await;
            let done = broker.cancel_timer("timer", name).await?;
            journal.write(What::Cancelled { id, done });
        }
        if dice.bool() {
            sleep(LEASE.mul_f64(dice.f64() / 2.0)).await;
        }
    }
    Ok(())
}
