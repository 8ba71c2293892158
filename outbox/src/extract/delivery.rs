//! What a run needs of its delivery, and what it leaves there for the engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::States;
use super::loan::Loan;
use super::watch::Watch;
use super::work::{Stage, Work};
use crate::message::{Headers, Row};
use crate::publish::{Collected, Gathered, Publisher};
use crate::subscriber::{AckPolicy, Outcome, Subscriber};
use crate::tracking::Trail;

/// What a run needs of its delivery, in one allocation.
pub(crate) struct Delivery {
    pub(crate) row: Box<Row>,
    pub(crate) common: Arc<Common>,
    /// When the row was claimed, by the clock of this process.
    pub(crate) claimed_at: Instant,
    pub(crate) watch: Watch,
    pub(crate) headers: OnceLock<Headers>,
    pub(crate) trail: OnceLock<Trail>,
    /// `None` once messages that are collected would be lost.
    pub(crate) collected: OnceLock<Option<Collected>>,
    pub(crate) loan: OnceLock<Arc<Loan>>,
    /// What was said on its `Context`. The first word counts.
    pub(crate) said: OnceLock<Word>,
    /// True if its handler has returned, and the returned value says nothing.
    silent: AtomicBool,
    pub(crate) work: Work,
    /// When its handler was started.
    pub(crate) began: OnceLock<Instant>,
}

/// A word on a delivery.
pub(crate) struct Word {
    pub(crate) outcome: Outcome,
    /// True if the handler said it, and not a layer around it.
    pub(crate) within: bool,
}

/// What the deliveries of a subscriber share.
pub(crate) struct Common {
    pub(crate) subscriber: &'static str,
    pub(crate) states: States,
    pub(crate) publisher: Publisher,
    pub(crate) ack: AckPolicy,
    /// Places on blocking threads, for a handler that is a plain fn.
    pub(crate) threads: Arc<Semaphore>,
}

impl Common {
    pub(crate) fn of(
        subscriber: &Subscriber,
        states: &States,
        publisher: &Publisher,
        threads: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            subscriber: subscriber.name(),
            states: states.overlaid(&subscriber.states),
            publisher: publisher.clone(),
            ack: subscriber.options.ack,
            threads: Arc::new(Semaphore::new(threads.min(Semaphore::MAX_PERMITS))),
        })
    }

    /// Whether messages can be collected: not if rows are acked before the handler runs.
    pub(crate) fn collects(&self) -> bool {
        self.ack != AckPolicy::AckFirst
    }
}

impl Delivery {
    pub(crate) fn new(
        row: Box<Row>,
        common: &Arc<Common>,
        claimed_at: Instant,
        deadline: Instant,
    ) -> Self {
        Self {
            row,
            common: Arc::clone(common),
            claimed_at,
            watch: Watch::until(deadline),
            headers: OnceLock::new(),
            trail: OnceLock::new(),
            collected: OnceLock::new(),
            loan: OnceLock::new(),
            said: OnceLock::new(),
            silent: AtomicBool::new(false),
            work: Work::new(),
            began: OnceLock::new(),
        }
    }

    /// Notes whether the value that its handler returned says something.
    pub(crate) fn says(&self, word: bool) {
        self.silent.store(!word, Ordering::Relaxed);
    }

    /// Whether nobody has said anything about it.
    pub(crate) fn is_silent(&self) -> bool {
        self.said.get().is_none() && self.silent.load(Ordering::Relaxed)
    }

    /// What the engine lends to its run.
    pub(crate) fn loan(&self) -> &Arc<Loan> {
        self.loan.get_or_init(Arc::default)
    }

    /// Whether an ack is the handler's own, and not that of a layer in spite of the handler.
    pub(super) fn is_acked_by_handler(&self) -> bool {
        let said = self.said.get().is_some_and(|it| it.within && it.outcome == Outcome::Ack);
        said && !self.took_transaction()
            || matches!(self.work.stage(), Stage::Outside | Stage::Acked)
    }

    /// Takes what its handler and the layers have collected. From then on they collect nothing.
    pub(crate) fn end_collection(&self) -> Vec<Gathered> {
        self.collected.get_or_init(|| None).as_ref().map(Collected::end).unwrap_or_default()
    }

    /// Until when the message may start. `None` if it does not expire, or ends with the world.
    pub(super) fn expires(&self) -> Option<Instant> {
        self.claimed_at.checked_add(self.row.start_within()?)
    }

    /// Whether the time of the message is over. Then it may not start, except in a rehearsal. What
    /// is acked first has started with its ack.
    pub(crate) fn is_late(&self) -> bool {
        self.common.collects()
            && self.loan.get().is_none_or(|loan| loan.rehearsed.get().is_none())
            && self.row.has_expired(self.claimed_at.elapsed())
    }

    /// Whether it or another message of its run is late, and the run would not leave that one out.
    pub(super) fn is_run_late(&self) -> bool {
        let loan = self.loan();
        let sorts_out = loan.sorts_out.load(Ordering::Relaxed);
        !sorts_out && (self.is_late() || loan.has_expired() && loan.rehearsed.get().is_none())
    }

    /// Whether its handler has asked for a transaction.
    pub(crate) fn took_transaction(&self) -> bool {
        self.loan.get().is_some_and(|loan| loan.lent.get().is_some())
    }

    pub(crate) fn is_sole_writer(&self) -> bool {
        self.loan.get().is_some_and(|loan| loan.is_sole_writer())
    }
}
