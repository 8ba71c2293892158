//! The error of a delivery: what went wrong, of which kind, and its text.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tracing::error;

use super::verdict::{Judged, Said, Verdict, said_by};
use crate::error::BoxError;
use crate::message::DecodeError;
use crate::redacted::debug_only;
use crate::telemetry::TARGET;

/// Longest text that is kept of an error, in bytes.
pub(crate) const MAX_EXCEPTION_BYTES: usize = 8 * 1024;
const CUT_MARK: &str = "…[truncated]";

/// When a message is due again whose transaction the database could not begin or commit.
const PUT_OFF: Duration = Duration::from_secs(1);

/// Why a delivery failed: the handler's error, or what kept it from running.
#[derive(Clone)]
pub struct HandlerError {
    pub(crate) kind: Cow<'static, str>,
    source: Source,
    /// What the error says of itself; the ack policy counts otherwise.
    pub(crate) verdict: Option<Verdict>,
    /// It comes of a transaction that failed by no fault of the handler.
    put_off: bool,
}

impl HandlerError {
    /// The payload could not be read as the handler's type.
    pub const DECODE: &'static str = "decode";
    /// A parameter other than the payload could not be made.
    pub const EXTRACT: &'static str = "extract";
    /// The handler panicked.
    pub const PANIC: &'static str = "panic";
    /// A message that was to be published with the ack cannot be.
    pub const PUBLISH: &'static str = "publish";
    /// The transaction of a handler that takes `Tx` was refused, or could not begin or
    /// commit. Where that is the database's failure the message is only put off.
    pub const TRANSACTION: &'static str = "transaction";
    /// A handler of batches returned another number of results than it got
    /// messages.
    pub const RESULTS: &'static str = "results";
    /// The handler took longer than its `timeout`.
    pub const TIMEOUT: &'static str = "timeout";

    /// An error of a named kind. What the error says of its message counts, as of one that a
    /// handler returns.
    pub fn new(kind: impl Into<Cow<'static, str>>, source: impl Into<BoxError>) -> Self {
        Self { kind: kind.into(), ..Self::read(source.into(), |_| "".into()) }
    }

    /// Of a panic.
    pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("the handler panicked with something other than a text");
        let error = Self::new(Self::PANIC, text.to_owned());
        dropped(panic);
        error
    }

    /// Of a transaction that failed by no fault of the handler: its message comes back,
    /// whatever its retries and its ack policy are. Spread, so that those which failed
    /// together do not come back together.
    pub(crate) fn put_off(source: impl Into<BoxError>) -> Self {
        let delay = PUT_OFF.mul_f64(0.5 + fastrand::f64());
        let verdict = Some(Verdict::Snooze(delay));
        Self { verdict, put_off: true, ..Self::new(Self::TRANSACTION, source) }
    }

    /// Whether it is one of those, of whatever kind it has become, and nobody has rejected it.
    pub(crate) fn is_put_off(&self) -> bool {
        self.put_off && matches!(self.verdict, Some(Verdict::Snooze(_)))
    }

    /// Whether a transaction that the database could not begin is why, and nobody has rejected it:
    /// a run without it would be taken for done.
    pub(crate) fn has_no_transaction(&self) -> bool {
        self.put_off && self.verdict != Some(Verdict::Reject)
    }

    /// What one of these says, if this is one that was boxed.
    pub(super) fn said_in(error: &(dyn Error + 'static)) -> Option<Said> {
        let Boxed(Self { kind, verdict, put_off, .. }) = error.downcast_ref()?;
        Some(Said { verdict: (*verdict)?, kind: kind.clone(), put_off: *put_off })
    }

    /// The error itself, if it is one of these that was boxed: a layer hands on
    /// what it got.
    fn known(error: BoxError) -> Result<Self, BoxError> {
        error.downcast::<Boxed>().map(|boxed| boxed.0)
    }

    /// One that says of what kind it is, or an error of this kind.
    pub(crate) fn or_kind(kind: &'static str, error: impl Into<BoxError>) -> Self {
        Self::known(error.into()).unwrap_or_else(|error| Self::new(kind, error))
    }

    /// The error of a handler, with what it says of itself. Its kind is that of a
    /// [`Failure`](crate::Failure), or the name of its type.
    pub(crate) fn of<E: Into<BoxError>>(error: E) -> Self {
        Self::read(error.into(), kind_of::<E>)
    }

    /// Its kind is this if it says none.
    fn read(source: BoxError, kind: fn(&(dyn Error + 'static)) -> Cow<'static, str>) -> Self {
        let source = match Self::known(source) {
            Ok(known) => return known,
            Err(source) => source,
        };
        let (verdict, kind, put_off) = match said_by(&*source) {
            Some(Said { verdict, kind, put_off }) => (Some(verdict), kind, put_off),
            None => (None, kind(&*source), false),
        };
        let source = match source.downcast::<Judged>() {
            Ok(judged) => judged.into_inner(),
            Err(source) => source,
        };
        match Self::known(source) {
            Ok(known) => Self { verdict, ..known },
            Err(source) => Self { kind, source: Source::of(source), verdict, put_off },
        }
    }

    /// `decode`, `extract`, `panic`, `publish`, `results`, `timeout`, `transaction`, or of the
    /// handler's own error: the variant of a [`Failure`](crate::Failure), or the type's name, with
    /// whose it is if that is `Error`: `io::Error`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub(crate) fn into_kind(self) -> Cow<'static, str> {
        self.kind
    }

    /// The error itself.
    #[must_use]
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.source
    }
}

debug_only!(error: HandlerError => kind);

/// The user's error. Shared, because that of a batch is that of each of its messages.
#[derive(Clone)]
struct Source(Option<Arc<dyn Error + Send + Sync>>);

impl Source {
    fn of(error: BoxError) -> Self {
        Self(Some(Arc::from(error)))
    }
}

impl Deref for Source {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        self.0.as_deref().expect("only its destructor takes it")
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        dropped(self.0.take());
    }
}

/// Drops what is the user's: a panic of its destructor would take the results of other messages
/// with it.
fn dropped<T>(value: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(value))).is_err() {
        error!(target: TARGET, "an error panicked while it was dropped");
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, &*self.source)
    }
}

/// So that `?` works on every error, as in a handler. It is no `Error` itself for that
/// reason; boxed, it prints as the error that it was made of.
impl<E: Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::of(error)
    }
}

impl From<HandlerError> for BoxError {
    fn from(error: HandlerError) -> Self {
        Box::new(Boxed(error))
    }
}

/// On its way through a `Result` of boxed errors, or the source of another one.
struct Boxed(HandlerError);

impl fmt::Debug for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0.source, f)
    }
}

impl fmt::Display for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for Boxed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.source()
    }
}

/// Of an error that says none.
pub(super) fn kind_of<E>(error: &(dyn Error + 'static)) -> Cow<'static, str> {
    if error.is::<DecodeError>() { HandlerError::DECODE.into() } else { type_name::<E>() }
}

/// The name of a type, without its path and parameters; of one that is called `Error`, as many
/// are, also what it belongs to: `io::Error`, `sqlx::Error`.
pub(super) fn type_name<T>() -> Cow<'static, str> {
    named(std::any::type_name::<T>())
}

fn named(path: &'static str) -> Cow<'static, str> {
    let plain = path.split('<').next().unwrap_or(path);
    let (owner, name) = plain.rsplit_once("::").unwrap_or(("", plain));
    // A crate may be cut into several, and a module be called as what is in it.
    let owner = owner.strip_suffix("::error").unwrap_or(owner);
    let owner = owner.rsplit("::").next().unwrap_or(owner);
    let owner = if owner == "sqlx_core" { "sqlx" } else { owner };
    if name == "Error" && !owner.is_empty() {
        format!("{owner}::Error").into()
    } else {
        name.into()
    }
}

/// Turns an error into the text of `last_exception`; `None` stores none.
/// Replace the default with `App::error_renderer` when the `Debug` form of your
/// errors holds personal data.
pub type ErrorRenderer = dyn Fn(&(dyn Error + 'static)) -> Option<String> + Send + Sync;

/// The default renderer: the `Debug` form of the error and of its sources.
#[allow(clippy::unnecessary_wraps, reason = "it is an `ErrorRenderer`")]
pub(crate) fn debug_chain(error: &(dyn Error + 'static)) -> Option<String> {
    let mut text = format!("{error:?}");
    let mut cause = error.source();
    while let Some(source) = cause {
        if text.len() > MAX_EXCEPTION_BYTES {
            break;
        }
        text = format!("{text}\ncaused by: {source:?}");
        cause = source.source();
    }
    Some(text)
}

/// Makes a text storable whatever is in it: NUL, which PostgreSQL refuses, is
/// shown as `␀`, and it is cut at `limit` bytes on a character boundary.
pub(crate) fn storable<'a>(text: impl Into<Cow<'a, str>>, limit: usize) -> Cow<'a, str> {
    let mut text = text.into();
    if text.contains('\0') {
        text = text.replace('\0', "␀").into();
    }
    if text.len() <= limit {
        return text;
    }
    let mut end = limit.saturating_sub(CUT_MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT_MARK}", &text[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OrVerdict as _;

    #[derive(Debug, thiserror::Error)]
    #[error("no accounts")]
    struct NoAccounts(#[source] BoxError);

    #[test]
    fn what_was_put_off_is_so_inside_another_error_until_somebody_rejects_it() {
        let put_off = || HandlerError::put_off("no connection is free");
        let marked = || Err::<(), _>(put_off()).or_snooze(Duration::from_secs(60));
        let rejected = || Err::<(), _>(put_off()).or_reject();
        let refused = HandlerError::new(HandlerError::TRANSACTION, "a handler takes one `Tx`");
        let snoozed = Err::<(), _>(refused).or_snooze(Duration::from_secs(60));
        let cases: [(BoxError, bool); 5] = [
            (put_off().into(), true),
            (marked().unwrap_err().into(), true),
            (NoAccounts(marked().unwrap_err().into()).into(), true),
            (rejected().unwrap_err().into(), false),
            (snoozed.unwrap_err().into(), false),
        ];
        for (error, is_put_off) in cases {
            let error = HandlerError::or_kind(HandlerError::EXTRACT, NoAccounts(error));
            assert_eq!((error.kind(), error.is_put_off()), ("extract", is_put_off), "{error:?}");
        }
    }

    #[test]
    fn an_error_that_is_called_error_says_whose_it_is() {
        for (path, name) in [
            ("std::io::error::Error", "io::Error"),
            ("sqlx_core::error::Error", "sqlx::Error"),
            ("anyhow::Error", "anyhow::Error"),
            ("shop::mail::MailError", "MailError"),
            ("alloc::string::String", "String"),
            ("alloc::boxed::Box<dyn core::error::Error>", "Box"),
        ] {
            assert_eq!(named(path), name);
        }
    }

    #[test]
    fn stored_text_has_no_nul_and_ends_on_a_character() {
        assert_eq!(storable("a\0b", 100), "a␀b");
        let cut = storable("é".repeat(8000), MAX_EXCEPTION_BYTES);
        assert!(cut.len() <= MAX_EXCEPTION_BYTES);
        assert!(cut.ends_with("é…[truncated]"));
    }

    #[test]
    fn the_kind_is_the_type_name_without_path_or_generics() {
        assert_eq!(HandlerError::of(std::fmt::Error).kind(), "fmt::Error");
        assert_eq!(HandlerError::of(String::from("x")).kind(), "String");
    }
}
