//! The rules that turn a handler's result into a settlement, without IO. They read the clock and
//! call user code (the retry strategy, the error renderer), whose panics end here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::time::Instant;

use super::settlement::{Cause, Settlement, Text};
use crate::extract::{Context, Stage};
use crate::message::{FailureReason, Row, fingerprint};
use crate::retry::FailedAttempt;
use crate::store::{Before, Claimed};
use crate::subscriber::{
    AckPolicy, ErrorRenderer, HandlerError, HandlerResult, MAX_EXCEPTION_BYTES, Options, Outcome,
    Verdict, storable,
};
use crate::telemetry::{TARGET, error};

/// Length of the column `error_kind`.
const MAX_KIND_BYTES: usize = 255;

/// What is needed to judge a run.
pub(super) struct Case<'a> {
    pub(super) row: &'a Row,
    pub(super) options: &'a Options,
    pub(super) render: &'a ErrorRenderer,
    /// By this process's clock.
    pub(super) claimed_at: Instant,
}

/// A settlement, and the error that it is for, if any.
pub(super) struct Ruling {
    pub(super) settlement: Settlement,
    pub(super) error: Option<HandlerError>,
}

impl Ruling {
    pub(super) fn of(settlement: Settlement) -> Self {
        Self { settlement, error: None }
    }

    pub(super) fn is_ack(&self) -> bool {
        matches!(self.settlement, Settlement::Ack { .. })
    }
}

/// Whether the row is condemned without a run: it was delivered too often, and either it ran alone
/// when its process died, or one of its attempts has failed.
pub(super) fn is_guilty(options: &Options, claimed: &Claimed) -> bool {
    let guilty = match claimed.before {
        Before::ExpiredAlone => true,
        // Without a failed attempt, the row used up its deliveries because its processes died, and
        // the last claim was given back unstarted.
        Before::Settled => claimed.row.attempts_count > 0,
        Before::Expired => false,
    };
    guilty && is_too_often(options, &claimed.row)
}

/// Whether it was delivered more often than it may be.
pub(super) fn is_too_often(options: &Options, row: &Row) -> bool {
    options.max_deliveries.is_some_and(|max| row.deliveries_count > max)
}

impl Case<'_> {
    /// The ruling on a run that ended by itself.
    pub(super) fn rule(&self, context: &Context, result: HandlerResult) -> Ruling {
        let delivery = context.delivery();
        let word = delivery.said.get();
        let is_layers = word.is_some_and(|word| !word.within && word.outcome != Outcome::Ack);
        if is_layers && result.is_ok() && context.work().stage() == Stage::Acked {
            // What the handler wrote for this message must not commit.
            context.work().enter(Stage::Overruled);
        }
        let said = word.map(|word| &word.outcome);
        let said = said.filter(|said| result.is_ok() || self.overrules(context, said));
        let (mut settlement, error) = match result {
            Ok(Outcome::Ack) if self.is_manual() && delivery.is_silent() => {
                let why = "the handler returned without a word".into();
                (self.reject(None, Some(why)), None)
            }
            Ok(outcome) => (self.outcome(said.cloned().unwrap_or(outcome), None), None),
            Err(error) => {
                let said = said.map(|said| self.outcome(said.clone(), Some(&error)));
                (said.unwrap_or_else(|| self.failed(&error)), Some(error))
            }
        };
        if let Settlement::Ack { messages } = &mut settlement {
            match context.prepared() {
                Ok(prepared) => *messages = prepared,
                Err(why) => {
                    // What the handler wrote must not commit with the acks of others.
                    context.work().enter(Stage::Overruled);
                    return self.refused(HandlerError::new(HandlerError::PUBLISH, why));
                }
            }
        }
        Ruling { settlement, error }
    }

    /// The ruling on a run that a drain has cut off. The handler may have said its word before, and
    /// only cleaned up.
    pub(super) fn cut_off(&self, context: &Context) -> Ruling {
        let said = context.delivery().said.get().map(|word| &word.outcome);
        match said.filter(|said| self.overrules(context, said)) {
            Some(said) => self.rule(context, Ok(said.clone())),
            None => Ruling::of(Settlement::Abandon),
        }
    }

    /// Whether a word counts over an error. It does so under `Manual` only. There an ack does not
    /// once the handler has taken the transaction: it would commit what the error left half done.
    fn overrules(&self, context: &Context, said: &Outcome) -> bool {
        let undone = context.delivery().took_transaction();
        self.is_manual() && !(undone && *said == Outcome::Ack)
    }

    /// The ruling on an ack that cannot be written.
    pub(super) fn refused(&self, error: HandlerError) -> Ruling {
        Ruling { settlement: self.failed(&error), error: Some(error) }
    }

    fn is_manual(&self) -> bool {
        self.options.ack == AckPolicy::Manual
    }

    /// The settlement on an error.
    fn failed(&self, error: &HandlerError) -> Settlement {
        match error.verdict {
            Some(Verdict::Reject) => self.reject(Some(error), None),
            Some(Verdict::Snooze(delay)) => snooze(delay),
            Some(Verdict::RetryAfter(after)) => match self.nack(Some(error)) {
                Settlement::Retry { .. } => Settlement::Retry { delay: after },
                terminal => terminal,
            },
            None if self.options.ack == AckPolicy::RejectOnError => self.reject(Some(error), None),
            Some(Verdict::Retry) | None => self.nack(Some(error)),
        }
    }

    /// The settlement on a row that was delivered too often.
    pub(super) fn delivered_too_often(&self) -> Settlement {
        self.terminal(FailureReason::MaxDeliveries, None, None)
    }

    /// The settlement on a row whose time is over.
    pub(super) fn expired(&self) -> Settlement {
        self.terminal(FailureReason::Expired, None, None)
    }

    fn outcome(&self, outcome: Outcome, error: Option<&HandlerError>) -> Settlement {
        match outcome {
            Outcome::Ack => Settlement::Ack { messages: Vec::new() },
            Outcome::Nack => self.nack(error),
            Outcome::Reject(reason) => self.reject(error, Some(reason)),
            Outcome::Snooze(delay) => snooze(delay),
        }
    }

    fn nack(&self, error: Option<&HandlerError>) -> Settlement {
        let attempts = self.row.attempts_count.saturating_add(1);
        let failed = FailedAttempt::new(attempts, self.since_first_failure(), error);
        let ask = AssertUnwindSafe(|| self.options.retry.next_delay(&failed));
        match catch_unwind(ask) {
            Ok(Some(delay)) => Settlement::Retry { delay },
            Ok(None) => self.terminal(FailureReason::RetryTerminal, error, None),
            Err(_) => {
                error!(target: TARGET, row_id = self.row.id, "the retry strategy panicked; no retry");
                self.terminal(FailureReason::RetryTerminal, error, None)
            }
        }
    }

    fn reject(&self, error: Option<&HandlerError>, note: Option<Text>) -> Settlement {
        self.terminal(FailureReason::Rejected, error, note)
    }

    fn terminal(
        &self,
        reason: FailureReason,
        error: Option<&HandlerError>,
        note: Option<Text>,
    ) -> Settlement {
        let error_kind = error.map(|error| storable(error.kind.clone(), MAX_KIND_BYTES));
        let last_exception = error.and_then(|error| rendered(self.render, error));
        let note =
            note.filter(|note| !note.is_empty()).map(|note| storable(note, MAX_EXCEPTION_BYTES));
        let message = last_exception.as_deref().or(note.as_deref()).unwrap_or_default();
        let (queue, kind) = (&self.row.queue, error_kind.as_deref());
        let fingerprint = fingerprint(queue, kind, reason.as_str(), message);
        let cause = Cause { reason, error_kind, last_exception, note, fingerprint };
        Settlement::Dead(Box::new(cause))
    }

    /// The time from the first failure to the claim, and what has passed since. Both times are the
    /// database's, except for a first failure that Python wrote: that is by its worker's clock.
    fn since_first_failure(&self) -> Duration {
        let Some(first) = self.row.first_attempt_at else { return Duration::ZERO };
        let claimed = self.row.acquired_at.unwrap_or(first);
        claimed.duration_since(first).unwrap_or_default() + self.claimed_at.elapsed()
    }
}

pub(super) fn rendered(render: &ErrorRenderer, error: &HandlerError) -> Option<Text> {
    let text = catch_unwind(AssertUnwindSafe(|| render(error.error())))
        .unwrap_or_else(|_| Some("the error could not be shown: its renderer panicked".into()));
    text.map(|text| storable(text, MAX_EXCEPTION_BYTES))
}

fn snooze(delay: Duration) -> Settlement {
    Settlement::Release { due_in: Some(delay) }
}
