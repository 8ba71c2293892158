//! A subscriber, and what its loops share: its inbox, what wakes it, and what it reports. The
//! claimer looks for its rows, its workers run them, and the watcher of wakes wakes it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

use super::Shared;
use super::inbox::Inbox;
use super::pulse::Pulse;
use super::signal::Signal;
use super::sleep::Sleep;
use crate::extract::{Common, States};
use crate::subscriber::Subscriber;
use crate::telemetry::{Stats, TARGET, Teller, warn};

/// One subscriber with its runtime state.
pub(crate) struct Reader {
    pub(crate) subscriber: Subscriber,
    pub(crate) common: Arc<Common>,
    pub(crate) inbox: Inbox,
    pub(crate) signal: Signal,
    pub(super) sleep: Sleep,
    pub(crate) teller: Teller,
    pub(super) pulse: Arc<Pulse>,
    /// Whether its last claim was refused or had no answer. Health checks ask for it.
    pub(super) refused: AtomicBool,
}

impl Reader {
    /// `changed` makes the claimer look at it.
    pub(crate) fn new<S>(
        subscriber: Subscriber,
        shared: &Shared<S>,
        states: &States,
        counts: &Stats,
        changed: &Arc<Notify>,
    ) -> Self {
        let teller = Teller::of(&subscriber, counts, &shared.sinks);
        let pulse = Arc::clone(&shared.pulse);
        let options = &subscriber.options;
        let runs = options.max_workers.saturating_mul(options.batch.size);
        let ahead = options.fetch_batch.max(options.batch.size);
        let size = options.batch.size;
        let inbox = Inbox::new(runs, ahead, size, options.lease_ttl, changed);
        let common = Common::of(&subscriber, states, &shared.publisher, options.max_workers);
        let signal = Signal::new(changed);
        let sleep = Sleep::new(&shared.sleep);
        let refused = AtomicBool::new(false);
        Self { subscriber, common, inbox, signal, sleep, teller, pulse, refused }
    }

    /// Reports that a claimed row is given back, because too little of its lease is left to start
    /// it.
    pub(super) fn waited_too_long(&self, row_id: i64) {
        self.teller.waited_too_long();
        let gathers = !self.subscriber.options.batch.wait.is_zero();
        let lower = if gathers { "`fetch_batch` or `batch_wait`," } else { "`fetch_batch`" };
        warn!(
            target: TARGET, subscriber = self.subscriber.name(), row_id,
            "a claimed row waited until its lease had nearly run out and was not started; if the \
             database was not away for so long, lower {lower} or raise `lease_ttl`"
        );
    }
}
