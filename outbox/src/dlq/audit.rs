//! The line in the log that says what was done to which letters. Work that fails or is dropped
//! half-way writes it, too, because its finished batches stay done.

use std::fmt;

use super::Filter;
use crate::ops::json::rfc3339;
use crate::telemetry::TARGET;

/// Work on letters. When it is over, however it ends, the log says so.
pub(super) struct Audit<'a> {
    /// What became of them.
    what: &'static str,
    filter: &'a Filter,
    pub(super) letters: u64,
    /// It was not cut short. Letters that somebody else had locked may be left as they were; a
    /// replay knows of them.
    pub(super) whole: bool,
}

impl<'a> Audit<'a> {
    pub(super) fn of(what: &'static str, filter: &'a Filter) -> Self {
        Self { what, filter, letters: 0, whole: false }
    }
}

impl Drop for Audit<'_> {
    fn drop(&mut self) {
        let Self { what, filter, letters, whole } = self;
        if *whole || *letters > 0 {
            crate::telemetry::info!(
                target: TARGET, letters, filter = %Chosen(filter), whole,
                "dead letters were {what}"
            );
        }
    }
}

/// What a filter asks for.
struct Chosen<'a>(&'a Filter);

impl fmt::Display for Chosen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Filter { ids, queue, reason, error_kind, fingerprint, status, since, until, .. } =
            self.0;
        let text = |name: &str, value: Option<String>| Some(format!("{name}={}", value?));
        let quoted = |value: &Option<String>| value.as_ref().map(|value| format!("{value:?}"));
        let asked = [
            text("ids", ids.as_deref().map(few)),
            text("queue", quoted(queue)),
            text("reason", quoted(reason)),
            text("error_kind", quoted(error_kind)),
            text("fingerprint", quoted(fingerprint)),
            text("status", status.map(|status| status.as_str().to_owned())),
            text("since", since.map(rfc3339)),
            text("until", until.map(rfc3339)),
        ];
        let asked: Vec<_> = asked.into_iter().flatten().collect();
        f.write_str(if asked.is_empty() { "all" } else { "" })?;
        f.write_str(&asked.join(" "))
    }
}

/// The ids. Of more than ten: the first, the last, and how many there are.
pub(crate) fn few(ids: &[i64]) -> String {
    match ids {
        [first, .., last] if ids.len() > 10 => format!("{first}..{last} ({} of them)", ids.len()),
        _ => format!("{ids:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlq::Status;

    #[test]
    fn a_filter_is_told_by_what_it_asks_for() {
        assert_eq!(Chosen(&Filter::new()).to_string(), "all");
        let hour = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(3600);
        let one = Filter::new().queue("a\nb").status(Status::Ignored).until(hour).ids([7, 9]);
        let told = r#"ids=[7, 9] queue="a\nb" status=ignored until=1970-01-01T01:00:00.000000Z"#;
        assert_eq!(Chosen(&one).to_string(), told);
        assert_eq!(Chosen(&Filter::new().ids(1..=11)).to_string(), "ids=1..11 (11 of them)");
    }
}
