//! What is reported of a delivery once its settlement was written, or was not. Every delivery is
//! closed here, once. The claimer also learns from here when a row is due again.

use tokio::time::Instant;

use super::settlement::Settlement;
use super::settling::Settling;
use crate::telemetry::{Close, TARGET, warn};

impl Settling {
    /// Closes a delivery that was acked in a transaction which has committed.
    pub(super) fn committed(self: Box<Self>) {
        self.ruled(Settlement::Ack { messages: Vec::new() }).close(true, false);
    }

    /// Reports what became of it, once. It has not landed if no row had the id and the token, if it
    /// was refused, if it was too late, or if nothing is written any more. But an earlier try without
    /// an answer may have landed.
    pub(super) fn close(&self, landed: bool, dead_letter: bool) {
        let never_started = self.report.started.is_none();
        let unknown = !landed && self.unanswered;
        let close = |how| self.report.close(how, &self.reader.teller);
        match (&self.settlement, landed) {
            (Settlement::Release { .. }, true) if never_started => {}
            (Settlement::Dead(cause), _) if never_started && unknown => {
                // No event tells of a message that never started, unless it is known to be gone.
                let (teller, row_id) = (&self.reader.teller, self.lease.id);
                warn!(
                    target: TARGET, subscriber = teller.name(), row_id, reason = %cause.reason,
                    queue = teller.queue(self.report.queue),
                    "a message that was not to run may be gone: the database did not confirm it"
                );
                self.reader.signal.wake();
            }
            // The row may be nobody's, as below.
            (Settlement::Lost | Settlement::Kept | Settlement::Condemned, _)
            | (Settlement::Dead(_) | Settlement::Release { .. }, false)
                if never_started =>
            {
                self.reader.signal.wake();
            }
            (Settlement::Ack { .. }, true) => close(Close::Acked),
            (Settlement::Retry { delay }, true) => {
                close(Close::Retried { next_delay: *delay });
            }
            (Settlement::Release { due_in }, true) => {
                let next_delay = due_in.unwrap_or_default();
                close(Close::Snoozed { next_delay });
            }
            (Settlement::Dead(cause), true) => {
                close(Close::Terminal { reason: cause.reason, dead_letter });
            }
            (Settlement::Abandon, _) => close(Close::Abandoned),
            (settlement, _) => {
                close(Close::LeaseLost {
                    retry: matches!(
                        settlement,
                        Settlement::Retry { .. } | Settlement::Release { .. }
                    ),
                    unknown,
                });
                // The row may be nobody's by now, and no claim has looked ahead to the end of its
                // lease. So the subscriber looks at once.
                self.reader.signal.wake();
            }
        }
    }

    /// Tells the claimer when a row is due again.
    pub(super) fn announce(&self) {
        let wait = match self.settlement {
            Settlement::Retry { delay } => Some(delay),
            Settlement::Release { due_in, .. } => Some(due_in.unwrap_or_default()),
            Settlement::Kept | Settlement::Condemned => Some(self.lease_ttl()),
            _ => None,
        };
        if let Some(at) = wait.and_then(|wait| Instant::now().checked_add(wait)) {
            self.reader.signal.due_at(at);
        }
    }
}
