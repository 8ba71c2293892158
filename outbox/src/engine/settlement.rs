//! What is to be written of a delivery.

use std::borrow::Cow;
use std::time::Duration;

use crate::message::{FailureReason, Fingerprint};
use crate::publish::Prepared;

#[derive(Debug)]
pub(crate) enum Settlement {
    /// Deleted as handled, and these messages published by the same statement.
    Ack {
        messages: Vec<Prepared>,
    },
    Retry {
        delay: Duration,
    },
    /// Apart, because every ruling is moved as often as this one would be.
    Dead(Box<Cause>),
    /// Due again, at once or then, as if this delivery had never been.
    Release {
        due_in: Option<Duration>,
    },
    /// Its letter could not be written: due again after a lease. A run of it does not count as
    /// a delivery, or the row would be condemned for the table.
    Kept,
    /// As this, of one condemned unrun: leased on under a token that condemns it again.
    Condemned,
    /// The drain dropped the handler: released at once, the delivery counts.
    Abandon,
    /// Nothing to write: another claim owns the row.
    Lost,
}

/// What stands in the program is not copied for each letter.
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
