//! A simulated process: an engine that is started, crashes or drains, and comes back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::store::FaultyStore;
use super::told::{Fault, Place, Told};
use super::world::{Cast, World};
use crate::engine::{Engine, Settings, Shared, Vital};
use crate::telemetry::Sinks;
use crate::unpoisoned::Locked as _;

/// One life of a process, from a start to the next stop.
pub(super) struct Process {
    pub(super) session: u32,
    dead: AtomicBool,
    died: Notify,
    vitals: OnceLock<Weak<dyn Vital>>,
    /// Until when its statements hang, if they do.
    held_up: Mutex<Option<Instant>>,
}

impl Process {
    fn new(session: u32) -> Arc<Self> {
        Arc::new(Self {
            session,
            dead: AtomicBool::new(false),
            died: Notify::new(),
            vitals: OnceLock::new(),
            held_up: Mutex::new(None),
        })
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Ends the process here and now: no task of its engine takes another step.
    pub(super) fn die(&self, world: &World, place: Place) {
        if self.dead.swap(true, Ordering::Relaxed) {
            return;
        }
        world.tell(&Told::Crashed { session: self.session, place });
        if let Some(vitals) = self.vitals.get().and_then(Weak::upgrade) {
            vitals.end_loops();
        }
        self.died.notify_one();
    }

    /// Until when a statement with this fault hangs, and until when its answer does.
    pub(super) fn waits(&self, world: &World, fault: Option<Fault>) -> Waits {
        let mut held_up = self.held_up.locked();
        let end = || Some(Instant::now() + world.dice.up_to(world.weather.stall));
        let (mut sent, mut answered) = (None, None);
        match fault {
            Some(Fault::Stalled) if world.dice.hits(0.5) => answered = end(),
            Some(Fault::Stalled | Fault::Late) => sent = end(),
            Some(Fault::CutOff) => *held_up = end(),
            _ => {}
        }
        Waits { sent: sent.max(*held_up), answered: answered.max(*held_up) }
    }
}

/// Until when a statement and its answer hang; `None` if they do not.
pub(super) struct Waits {
    pub(super) sent: Option<Instant>,
    pub(super) answered: Option<Instant>,
}

pub(super) async fn wait(until: Option<Instant>) {
    if let Some(until) = until.filter(|until| *until > Instant::now()) {
        sleep_until(until).await;
    }
}

/// Starts and stops a process again and again until the simulation is over.
///
/// # Panics
/// If a loop of its engine has ended by itself.
pub(super) async fn live(world: Arc<World>, cast: Arc<Cast>) {
    loop {
        let process = Process::new(world.next_session());
        let mut engine = start(&world, &cast, &process);
        let drains = tokio::select! {
            biased;
            () = process.died.notified() => false,
            () = world.closing.cancelled() => true,
            drains = world.stop() => drains,
        };
        let over = world.closing.is_cancelled();
        if over
            && !process.is_dead()
            && let Some(ended) = engine.vitals().upgrade().and_then(|vital| vital.ended())
        {
            panic!("{ended}");
        }
        if drains {
            tokio::select! {
                biased;
                () = process.died.notified() => {}
                () = drain(&world, &process, &mut engine) => {}
            }
        } else {
            process.die(&world, Place::Between);
        }
        drop(engine);
        if over {
            return;
        }
        tokio::select! {
            biased;
            () = world.closing.cancelled() => return,
            () = sleep(world.dice.up_to(world.weather.away)) => {}
        }
    }
}

fn start(world: &Arc<World>, cast: &Cast, process: &Arc<Process>) -> Engine<FaultyStore> {
    world.tell(&Told::Started { session: process.session });
    let store = FaultyStore { world: Arc::clone(world), process: Arc::clone(process) };
    let render = Arc::clone(&cast.render);
    let mut shared = Shared::new(store, render, cast.publisher.clone(), Sinks::default());
    shared.logs_errors = cast.logs_errors;
    let settings = Settings { drain_timeout: world.weather.drain_timeout, sample_every: None };
    // No thread watches the leases: it would run on another clock.
    let engine = Engine::start(
        shared,
        cast.subscribers.clone(),
        &cast.states,
        &cast.stats,
        settings,
        None::<fn() -> FaultyStore>,
    );
    let _ = process.vitals.set(engine.vitals());
    engine
}

async fn drain(world: &World, process: &Process, engine: &mut Engine<FaultyStore>) {
    let session = process.session;
    world.tell(&Told::Draining { session });
    let clean = engine.drain().await.is_ok();
    world.tell(&Told::Drained { session, clean });
}
