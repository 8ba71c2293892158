//! The filter that chooses letters.

use std::time::SystemTime;

use super::Status;

/// Chooses letters. A letter matches if it meets every condition; without conditions, every
/// letter matches.
///
/// # Examples
/// ```
/// use outbox::dlq::{Filter, Status};
///
/// let filter = Filter::new().queue("orders").reason("retry_terminal").status(Status::Failed);
/// assert_ne!(filter, Filter::new());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Filter {
    pub(crate) ids: Option<Vec<i64>>,
    pub(crate) queue: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) error_kind: Option<String>,
    pub(crate) fingerprint: Option<String>,
    pub(crate) status: Option<Status>,
    pub(crate) since: Option<SystemTime>,
    pub(crate) until: Option<SystemTime>,
    /// Nothing matches, whatever else is asked for. Then it has no ids.
    pub(crate) impossible: bool,
}

impl Filter {
    /// A filter without conditions: it matches every letter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only letters with these ids, which are ids of the dead-letter table.
    pub fn ids(mut self, ids: impl IntoIterator<Item = i64>) -> Self {
        let mut ids: Vec<_> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        if self.impossible {
            ids.clear();
        }
        self.ids = Some(ids);
        self
    }

    /// Only letters of this queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = self.text(queue);
        self
    }

    /// Only letters with this reason, as stored in the column: `retry_terminal`, `rejected`,
    /// `max_deliveries`, `expired`.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = self.text(reason);
        self
    }

    /// Only letters whose error is of this kind.
    pub fn error_kind(mut self, kind: impl Into<String>) -> Self {
        self.error_kind = self.text(kind);
        self
    }

    /// Only letters of this problem; see [`DeadLetters::groups`](super::DeadLetters::groups).
    pub fn fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.fingerprint = self.text(fingerprint);
        self
    }

    /// Only letters with this status.
    pub fn status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    /// Only letters that failed at this time or later, by the database's clock.
    pub fn since(mut self, time: SystemTime) -> Self {
        self.since = Some(time);
        self
    }

    /// Only letters that failed before this time, by the database's clock.
    pub fn until(mut self, time: SystemTime) -> Self {
        self.until = Some(time);
        self
    }

    /// PostgreSQL stores no text with NUL, and refuses a statement that asks for one, with the
    /// transaction that it is in.
    fn text(&mut self, text: impl Into<String>) -> Option<String> {
        let text = text.into();
        if text.contains('\0') {
            self.impossible = true;
            self.ids = Some(Vec::new());
            return None;
        }
        Some(text)
    }

    /// The open letters among those that match.
    pub(crate) fn open(&self) -> Self {
        let open = self.clone().status(Status::Failed);
        match self.status {
            None | Some(Status::Failed) => open,
            Some(_) => open.ids([]),
        }
    }

    /// Whether the filter has this condition of a statement.
    pub(crate) fn wants(&self, condition: &str) -> bool {
        match condition {
            "ids" => self.ids.is_some(),
            "queue" => self.queue.is_some(),
            "reason" => self.reason.is_some(),
            "error_kind" => self.error_kind.is_some(),
            "fingerprint" => self.fingerprint.is_some(),
            "since" => self.since.is_some(),
            "until" => self.until.is_some(),
            status => self.status.is_some_and(|wanted| wanted.as_str() == status),
        }
    }
}
