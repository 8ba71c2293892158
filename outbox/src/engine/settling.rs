//! One delivery on its way to the store, with its settlement. A worker makes it, `results` keeps it
//! until a settler takes it, and `closing` reports what became of it. A settlement that cannot be
//! written becomes another one here: an ack becomes a failure, and a dead letter gives its row
//! back.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::Reader;
use super::inbox::Job;
use super::judge::{Case, is_guilty};
use super::lease::margin;
use super::settlement::Settlement;
use crate::error::StoreError;
use crate::message::{FailureReason, Row};
use crate::publish::Prepared;
use crate::store::{Death, Extend, Handled, Lease, Release, Retry};
use crate::subscriber::{ErrorRenderer, HandlerError};
use crate::telemetry::Report;

/// A delivery with its settlement, on its way to the store. It passes through many hands before it
/// waits with others; until then it is boxed.
pub(crate) struct Settling {
    pub(crate) lease: Lease,
    pub(crate) settlement: Settlement,
    pub(crate) report: Report,
    /// An earlier write of it had no answer and may have landed.
    pub(super) unanswered: bool,
    /// It is a timer.
    pub(super) timer: bool,
    /// Whether it waits for somebody's lock: if it sets timers, that of one of these.
    pub(super) waits: Waits,
    /// Set for an ack that publishes.
    refusal: Option<Box<Refusal>>,
    /// It must not run; merely given back, it would. See [`is_guilty`].
    pub(super) guilty: bool,
    /// It ran alone: no other handler starts before this is dropped, because its token still says
    /// so.
    pub(super) alone: Option<AbortOnDropHandle<()>>,
    /// By the database's clock.
    claimed_at: Option<SystemTime>,
    /// Until then a failing write is repeated. Afterwards another claim may take the row.
    pub(super) deadline: Instant,
    pub(super) reader: Arc<Reader>,
}

/// Whether a settlement waits for somebody's lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waits {
    Not,
    /// Others that were in its statement may be the ones that wait.
    New,
    /// It was tried by itself, or waits behind another for the same timer.
    Long,
}

/// What it takes to make a failure of an ack, if the database refuses for good what the ack
/// publishes: a failure of the handler that published it.
struct Refusal {
    /// Without its payload and its headers.
    row: Row,
    /// By the clock of this process.
    claimed_at: Instant,
    render: Arc<ErrorRenderer>,
}

impl Settling {
    /// A delivery without a settlement yet.
    pub(super) fn of(reader: &Arc<Reader>, job: &Job) -> Box<Self> {
        let row = &job.claimed.row;
        Box::new(Self {
            lease: Lease { id: row.id, token: row.acquired_token.unwrap_or_default() },
            settlement: Settlement::Lost,
            report: Report {
                id: row.id,
                queue: reader.teller.place_of(&row.queue),
                deliveries_count: row.deliveries_count,
                started: None,
                duration: None,
                exception_type: None,
                put_off: false,
            },
            unanswered: false,
            timer: row.timer_id.is_some(),
            waits: Waits::Not,
            refusal: None,
            guilty: is_guilty(&reader.subscriber.options, &job.claimed),
            alone: None,
            claimed_at: row.acquired_at,
            deadline: job.deadline,
            reader: Arc::clone(reader),
        })
    }

    /// The same delivery, under another lease.
    pub(super) fn under(&self, lease: Lease) -> Box<Self> {
        let (report, reader) = (self.report.clone(), Arc::clone(&self.reader));
        let (settlement, refusal, alone) = (Settlement::Lost, None, None);
        Box::new(Self { lease, settlement, report, refusal, alone, reader, ..*self })
    }

    /// Gives the row back as if it had never been claimed. A guilty row is condemned instead.
    pub(super) fn unstarted(self: Box<Self>) -> Box<Self> {
        let release = Settlement::Release { due_in: None };
        let settlement = if self.guilty { Settlement::Condemned } else { release };
        self.ruled(settlement)
    }

    pub(super) fn ruled(mut self: Box<Self>, settlement: Settlement) -> Box<Self> {
        self.settlement = settlement;
        self
    }

    /// As [`ruled`](Self::ruled), for a settlement that may be refused when it is written.
    pub(super) fn ruled_on(
        &mut self,
        settlement: Settlement,
        row: &Row,
        claimed_at: Instant,
        render: &Arc<ErrorRenderer>,
    ) {
        if matches!(&settlement, Settlement::Ack { messages } if !messages.is_empty()) {
            let row = row.without_content();
            let refusal = Refusal { row, claimed_at, render: Arc::clone(render) };
            self.refusal = Some(Box::new(refusal));
        }
        self.settlement = settlement;
    }

    /// Turns an ack whose messages the database refuses into a failure; `false` if it is no such
    /// ack.
    pub(super) fn refuse(&mut self, refused: &StoreError) -> bool {
        let Some(refusal) = self.refusal.take() else { return false };
        let Refusal { row, claimed_at, render } = &*refusal;
        let options = &self.reader.subscriber.options;
        let case = Case { row, options, render: &**render, claimed_at: *claimed_at };
        let ruling = case.refused(HandlerError::new(HandlerError::PUBLISH, refused.to_string()));
        self.report.exception_type = ruling.error.map(HandlerError::into_kind);
        self.settlement = ruling.settlement;
        true
    }

    /// Whether it is written into the dead-letter table.
    pub(super) fn is_letter(&self) -> bool {
        matches!(self.settlement, Settlement::Dead(_))
    }

    /// Roughly how many bytes its write has.
    pub(super) fn bytes(&self) -> usize {
        match &self.settlement {
            Settlement::Ack { messages } => messages.iter().map(Prepared::bytes).sum(),
            Settlement::Dead(cause) => [&cause.last_exception, &cause.note]
                .into_iter()
                .flatten()
                .map(|text| text.len())
                .sum(),
            _ => 0,
        }
    }

    /// Its lease was extended before it was tried.
    pub(super) fn goes_on(&mut self, sent: Instant) {
        self.deadline = self.deadline.max(sent + self.lease_ttl());
    }

    /// Whether more than a sixth of its lease is over.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.deadline.saturating_duration_since(now) < self.lease_ttl() * 5 / 6
    }

    /// Failing writes are repeated until then.
    pub(super) fn until(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Its lease was extended by a statement that was sent then. An ack that waits for a timer is
    /// repeated for as long as its lease goes on: somebody's open transaction may have the timer for
    /// many leases. Were it given up, the message would run again each time, and in the end look as
    /// if it brought its process down. Any other result is given up when its first lease is over.
    pub(super) fn extended(&mut self, sent: Instant) {
        if self.waits != Waits::Not && self.sets_timers() {
            self.goes_on(sent);
        }
    }

    /// Notes that a statement for it has failed, and may be repeated.
    pub(super) fn failed(&mut self, failed: &StoreError) {
        self.unanswered |= failed.perhaps_done;
        self.waits = if failed.locked { self.waits.max(Waits::New) } else { Waits::Not };
    }

    /// When it is late. A dead letter is not tried to the end of its lease: what is left of the
    /// lease then is for giving the row back.
    pub(super) fn late_at(&self) -> Instant {
        let rest = if self.is_letter() { margin(self.lease_ttl()) } else { Duration::ZERO };
        self.deadline.checked_sub(rest).unwrap_or(self.deadline)
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        now >= self.late_at()
    }

    /// Whether it is time to write it, though others could still join it.
    pub(super) fn is_urgent(&self, now: Instant) -> bool {
        now + margin(self.lease_ttl()) / 2 >= self.deadline
    }

    /// How long writing its dead letter may take, if it has one: the rest of the lease is for
    /// giving the row back.
    pub(super) fn letter_until(&self, now: Instant) -> Option<Instant> {
        let rest = self.is_letter().then(|| margin(self.lease_ttl()))?;
        Some(self.deadline.checked_sub(rest).unwrap_or(now).max(now + rest / 2))
    }

    /// Makes it give its row back instead of writing a dead letter; `false` if it has no letter.
    pub(super) fn give_back(&mut self) -> bool {
        let Settlement::Dead(cause) = &self.settlement else { return false };
        let condemned = cause.reason == FailureReason::MaxDeliveries;
        self.settlement = if condemned { Settlement::Condemned } else { Settlement::Kept };
        self.deadline = self.deadline.max(Instant::now() + margin(self.lease_ttl()));
        true
    }

    pub(super) fn lease_ttl(&self) -> Duration {
        self.reader.subscriber.options.lease_ttl
    }
}

/// What the statements take of it.
impl Settling {
    /// Whether it acks a timer. Such an ack comes before those that set the timer again: they would
    /// otherwise find it still there.
    pub(super) fn acks_timer(&self) -> bool {
        self.timer && matches!(self.settlement, Settlement::Ack { .. })
    }

    /// Whether it publishes timers. Its write may then wait for other people's transactions that
    /// have the same timers.
    pub(super) fn sets_timers(&self) -> bool {
        self.settlement.sets_timers()
    }

    /// Queue and name of every timer that is published with the ack.
    pub(super) fn timers(&self) -> Vec<(String, String)> {
        let Settlement::Ack { messages } = &self.settlement else { return Vec::new() };
        let named = |one: &Prepared| Some((one.queue.clone(), one.timer_id.clone()?));
        messages.iter().filter_map(named).collect()
    }

    pub(super) fn as_handled(&self) -> Option<Handled<'_>> {
        self.settlement.as_handled(self.lease)
    }

    /// The lease anew, under the same token.
    pub(super) fn as_extend(&self) -> Extend {
        Extend { lease: self.lease, token: self.lease.token }
    }

    pub(super) fn as_retry(&self) -> Option<Retry> {
        let Settlement::Retry { delay } = self.settlement else { return None };
        Some(Retry { lease: self.lease, delay })
    }

    pub(super) fn as_death(&self) -> Option<Death<'_>> {
        let Settlement::Dead(cause) = &self.settlement else { return None };
        Some(Death {
            lease: self.lease,
            reason: cause.reason,
            error_kind: cause.error_kind.as_deref().map(Cow::Borrowed),
            last_exception: cause.last_exception.as_deref().map(Cow::Borrowed),
            note: cause.note.as_deref().map(Cow::Borrowed),
            fingerprint: Some(Cow::Borrowed(cause.fingerprint.as_str())),
        })
    }

    pub(super) fn as_release(&self) -> Release {
        let (due_in, uncount) = match self.settlement {
            Settlement::Release { due_in } => (due_in, self.taken_back()),
            Settlement::Kept => (Some(self.lease_ttl()), self.taken_back()),
            // An abandoned one: its delivery counts.
            _ => (None, 0),
        };
        let claimed_at = self.report.started.and(self.claimed_at);
        Release { lease: self.lease, due_in, uncount, claimed_at }
    }

    /// How many deliveries a release takes back: this one, and for a row that was delivered too
    /// often, as many as bring it back below the limit. A row that was given back does not show
    /// that its leases ran out, and the next claim would condemn it without a run.
    fn taken_back(&self) -> u64 {
        let most = self.reader.subscriber.options.max_deliveries.unwrap_or(u64::MAX);
        let deliveries = self.report.deliveries_count;
        deliveries - deliveries.min(most).saturating_sub(1)
    }
}
