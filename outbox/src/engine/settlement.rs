//! What is to be written of one delivery. `judge` decides on it, and each kind is one statement:
//! see `settle`.

use std::borrow::Cow;
use std::time::Duration;

use crate::message::{FailureReason, Fingerprint};
use crate::publish::Prepared;
use crate::store::{Handled, Lease};

#[derive(Debug)]
pub(crate) enum Settlement {
    /// Deletes the row as handled, and publishes these messages with it.
    Ack {
        messages: Vec<Prepared>,
    },
    Retry {
        delay: Duration,
    },
    /// Boxed, because every ruling is moved and would be as large as this one.
    Dead(Box<Cause>),
    /// Gives the row back as if this delivery had never been: due as before, or after this time.
    Release {
        due_in: Option<Duration>,
    },
    /// Its dead letter could not be written: due again after a lease. This delivery is taken back,
    /// or the row would be condemned because of the dead-letter table.
    Kept,
    /// The same for a row that was condemned without a run: its lease goes on under a token that
    /// condemns it again.
    Condemned,
    /// The drain dropped the handler before there was a result: the row is released at once, and the
    /// delivery counts.
    Abandon,
    /// Nothing to write: another claim owns the row.
    Lost,
}

impl Settlement {
    /// The ack of a row under this lease, if it is one.
    pub(super) fn as_handled(&self, lease: Lease) -> Option<Handled<'_>> {
        let Self::Ack { messages } = self else { return None };
        Some(Handled { lease, messages })
    }

    /// Whether it publishes timers.
    pub(super) fn sets_timers(&self) -> bool {
        let Self::Ack { messages } = self else { return false };
        messages.iter().any(|one| one.timer_id.is_some())
    }
}

/// A text that stands in the program is not copied for each letter.
pub(crate) type Text = Cow<'static, str>;

/// Why a row failed for good, and what its dead letter says of that.
#[derive(Debug)]
pub(crate) struct Cause {
    pub(crate) reason: FailureReason,
    pub(crate) error_kind: Option<Text>,
    pub(crate) last_exception: Option<Text>,
    pub(crate) note: Option<Text>,
    pub(crate) fingerprint: Fingerprint,
}
