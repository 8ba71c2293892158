//! What the processes of a simulation share: the tables, the dice, and the listeners.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::super::TestBroker;
use super::chance::{Dice, Moment};
use super::ledger::Ledger;
use super::told::{Fault, Place, Told};
use super::wakes::Mailbox;
use super::weather::Weather;
use super::{idle, process};
use crate::extract::States;
use crate::publish::Publisher;
use crate::store::Wake;
use crate::store::memory::{MemoryStore, Statement};
use crate::subscriber::{ErrorRenderer, Subscriber};
use crate::telemetry::Stats;
use crate::unpoisoned::Locked as _;

/// Is told everything that happens.
pub(super) type Watch = Arc<dyn Fn(&Told<'_>) + Send + Sync>;

pub(in crate::testing) struct World {
    pub(super) dice: Dice,
    pub(super) weather: Weather,
    pub(super) store: MemoryStore,
    pub(super) ledger: Arc<Ledger>,
    pub(super) closing: CancellationToken,
    /// The queues that some subscriber reads.
    pub(super) queues: BTreeSet<String>,
    /// How long a message may be due without being claimed.
    pub(super) patience: Duration,
    pub(super) statements: AtomicUsize,
    watch: Option<Watch>,
    mailboxes: Mutex<Vec<Weak<Mailbox>>>,
    sessions: AtomicU32,
    /// Set when the processes start.
    calm_from: OnceLock<Instant>,
    processes: Mutex<Vec<JoinHandle<()>>>,
}

/// What every process runs.
pub(in crate::testing) struct Cast {
    pub(in crate::testing) subscribers: Vec<Subscriber>,
    pub(in crate::testing) states: States,
    pub(in crate::testing) stats: Stats,
    pub(in crate::testing) publisher: Publisher,
    pub(in crate::testing) render: Arc<ErrorRenderer>,
    pub(in crate::testing) logs_errors: bool,
}

impl World {
    pub(super) fn new(seed: u64, broker: &TestBroker, watch: Option<Watch>) -> Arc<Self> {
        let dice = Dice::new(seed);
        let subscribers = broker.setup().subscribers.clone();
        let queues = subscribers.iter().flat_map(|one| one.queues().to_vec()).collect();
        let world = Arc::new(Self {
            weather: Weather::of(&dice, &subscribers),
            dice,
            store: broker.store.clone(),
            ledger: Arc::new(Ledger::new(Arc::clone(&broker.calls))),
            closing: CancellationToken::new(),
            queues,
            patience: idle::patience(&subscribers),
            statements: AtomicUsize::new(0),
            watch,
            mailboxes: Mutex::default(),
            sessions: AtomicU32::new(0),
            calm_from: OnceLock::new(),
            processes: Mutex::default(),
        });
        let heed = Arc::downgrade(&world);
        world.store.run(move |statement| {
            if let Some(world) = heed.upgrade() {
                world.written(statement);
            }
        });
        world
    }

    /// Starts the processes, and with them the faults.
    pub(in crate::testing) fn begin(self: &Arc<Self>, mut cast: Cast) {
        let calm_from = Instant::now() + self.weather.storm;
        let _ = self.calm_from.set(calm_from);
        let around = self.ledger.layer(&self.store);
        for subscriber in &mut cast.subscribers {
            subscriber.inside(&[Arc::clone(&around)]);
        }
        let cast = Arc::new(cast);
        let lives = (0..self.weather.processes)
            .map(|_| tokio::spawn(process::live(Arc::clone(self), Arc::clone(&cast))));
        self.processes.locked().extend(lives);
        let world = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(calm_from).await;
            world.tell(&Told::Calm);
        });
    }

    /// Stops the faults and drains the processes.
    pub(super) async fn end(&self) {
        self.closing.cancel();
        let processes = std::mem::take(&mut *self.processes.locked());
        for process in processes {
            if let Err(error) = process.await {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }

    pub(super) fn tell(&self, told: &Told<'_>) {
        if let Some(watch) = &self.watch {
            watch(told);
        }
    }

    pub(super) fn next_session(&self) -> u32 {
        1 + self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether faults still come.
    pub(super) fn storms(&self) -> bool {
        let calm_from = self.calm_from.get();
        calm_from.is_some_and(|calm| Instant::now() < *calm) && !self.closing.is_cancelled()
    }

    fn strikes(&self, share: f64) -> bool {
        share > 0.0 && self.storms() && self.dice.hits(share)
    }

    /// A moment in which others may go first.
    pub(super) fn moment(&self) -> Moment {
        self.dice.moment(self.weather.delay)
    }

    /// Lets the processes run before the test goes on.
    pub(in crate::testing) async fn others_first(&self) {
        self.moment().pass().await;
    }

    /// What goes wrong with a statement, if anything.
    pub(super) fn fault(&self, action: &'static str) -> Option<Fault> {
        let weather = &self.weather;
        if self.strikes(weather.stalls) {
            let cut_off = self.dice.hits(weather.cut_off);
            return Some(if cut_off { Fault::CutOff } else { Fault::Stalled });
        }
        let broken_letters = if action == "bury" { weather.broken_letters } else { 0.0 };
        [
            (weather.refused.max(broken_letters), Fault::Refused),
            (weather.undone, Fault::Undone),
            (weather.unanswered, Fault::Unanswered),
            (weather.late, Fault::Late),
        ]
        .into_iter()
        .find(|(share, _)| self.strikes(*share))
        .map(|(_, fault)| match fault {
            Fault::Undone if self.dice.hits(0.5) => Fault::Busy,
            fault => fault,
        })
    }

    /// Where the process crashes at a statement, if it does.
    pub(super) fn crash(&self, action: &'static str) -> Option<Place> {
        // Claims are frequent. Crashes after a handler has done its work are worth the most.
        let worth = if ["claim", "abandon", "listen"].contains(&action) { 1.0 } else { 4.0 };
        let crashes = self.strikes(self.weather.crashes * worth);
        crashes.then(
            || {
                if self.dice.hits(0.5) { Place::Before(action) } else { Place::After(action) }
            },
        )
    }

    /// Waits for a stop, if there is to be one. True if it is a drain.
    pub(super) async fn stop(&self) -> bool {
        if let Some(life) = self.weather.life {
            sleep(self.dice.up_to(life)).await;
            if self.storms() {
                return self.dice.hits(self.weather.drains);
            }
        }
        pending().await
    }

    pub(super) fn mailbox(&self) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::default());
        let mut mailboxes = self.mailboxes.locked();
        mailboxes.retain(|it| it.strong_count() > 0);
        mailboxes.push(Arc::downgrade(&mailbox));
        mailbox
    }

    /// The tables have changed. Called while they are locked.
    fn written(&self, statement: &Statement) {
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.tell(&Told::Written(statement));
        for row in statement.rows.iter().filter(|change| change.before.is_none()) {
            row.after.iter().for_each(|row| self.wake(&row.queue));
        }
        self.ledger.changed.notify_waiters();
    }

    fn wake(&self, queue: &str) {
        let mailboxes = self.mailboxes.locked();
        let mut processes = 0;
        for mailbox in mailboxes.iter().filter_map(Weak::upgrade).filter(|it| it.wants(queue)) {
            if self.strikes(self.weather.broken_wakes) {
                mailbox.cut();
                self.tell(&Told::Deafened { queue });
            } else if !self.strikes(self.weather.lost_wakes) {
                mailbox.put(Wake::Queue(queue.to_owned()));
                processes += 1;
            }
        }
        self.tell(&Told::Woke { queue, processes });
    }
}
