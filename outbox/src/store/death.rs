//! What a dead letter says beside the row. It borrows its texts from the settlement, which may have
//! to be written again.

use std::borrow::Cow;

use super::Lease;
use crate::message::FailureReason;

/// Deletes a row, and keeps it in the dead-letter table if there is one.
#[derive(Debug, Clone)]
pub struct Death<'a> {
    pub lease: Lease,
    pub reason: FailureReason,
    /// Can be stored: no NUL, and within the column's length. So can the two below.
    pub error_kind: Option<Cow<'a, str>>,
    pub last_exception: Option<Cow<'a, str>>,
    pub note: Option<Cow<'a, str>>,
    /// The same for all dead letters of one problem.
    pub fingerprint: Option<Cow<'a, str>>,
}

impl Death<'_> {
    /// Reason, kind, exception, note and fingerprint.
    pub(super) fn texts(&self) -> [Option<&str>; 5] {
        [
            Some(self.reason.as_str()),
            self.error_kind.as_deref(),
            self.last_exception.as_deref(),
            self.note.as_deref(),
            self.fingerprint.as_deref(),
        ]
    }
}

#[cfg(feature = "testing")]
impl Death<'_> {
    pub(crate) fn owned(&self) -> Death<'static> {
        let text = |text: &Option<Cow<'_, str>>| text.as_deref().map(|it| Cow::Owned(it.into()));
        Death {
            lease: self.lease,
            reason: self.reason,
            error_kind: text(&self.error_kind),
            last_exception: text(&self.last_exception),
            note: text(&self.note),
            fingerprint: text(&self.fingerprint),
        }
    }
}
