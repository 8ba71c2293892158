//! The error of a delivery: its kind, its source and its text.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::kind::kind_of;
use super::verdict::{Judged, Said, Verdict, said_by};
use crate::error::BoxError;
use crate::redacted::debug_only;
use crate::telemetry::{TARGET, error};

/// The longest text of an error that is kept, in bytes.
pub(crate) const MAX_EXCEPTION_BYTES: usize = 8 * 1024;
const CUT_MARK: &str = "…[truncated]";

/// How long a message is put off if the database could not begin or commit its transaction.
const PUT_OFF: Duration = Duration::from_secs(1);
/// The message has expired.
pub(crate) const LATE: &str = "the time of the message was over before its handler could start";

/// Spread, so that messages that failed together do not come back together.
fn soon() -> Verdict {
    Verdict::Snooze(PUT_OFF.mul_f64(0.5 + fastrand::f64()))
}

/// Why a delivery failed: the handler's error, or what kept it from running.
#[derive(Clone)]
pub struct HandlerError {
    pub(crate) kind: Cow<'static, str>,
    source: Source,
    /// What the error says about its message. `None` leaves that to the ack policy.
    pub(crate) verdict: Option<Verdict>,
    /// What it stems from, if that is a transaction that failed by no fault of the handler.
    put_off: Option<Unbegun>,
}

/// Why a transaction did not begin or did not commit.
pub(super) type Unbegun = Arc<dyn Error + Send + Sync>;

impl HandlerError {
    /// The payload could not be decoded as the handler's type.
    pub const DECODE: &'static str = "decode";
    /// A parameter other than the payload could not be made.
    pub const EXTRACT: &'static str = "extract";
    /// The handler panicked.
    pub const PANIC: &'static str = "panic";
    /// A message that was to be published with the ack was refused.
    pub const PUBLISH: &'static str = "publish";
    /// The transaction of a handler that takes `Tx` was refused, or could not begin or
    /// commit. If that is the database's failure, the message is only put off.
    pub const TRANSACTION: &'static str = "transaction";
    /// A handler of batches returned more or fewer results than it got messages.
    pub const RESULTS: &'static str = "results";
    /// The handler took longer than its `timeout`.
    pub const TIMEOUT: &'static str = "timeout";

    /// Makes an error of a named kind. What `source` says about its message counts, as it does
    /// when a handler returns it.
    pub fn new(kind: impl Into<Cow<'static, str>>, source: impl Into<BoxError>) -> Self {
        Self { kind: kind.into(), ..Self::read(source.into(), |_| "".into()) }
    }

    /// The error for a panic.
    pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("the handler panicked with something other than a text");
        let error = Self::new(Self::PANIC, text.to_owned());
        dropped(panic);
        error
    }

    /// The error for more or fewer results than there were messages.
    pub(crate) fn miscounted(results: usize, messages: usize) -> Self {
        Self::new(Self::RESULTS, format!("{results} results for {messages} messages"))
    }

    /// The error for a transaction that failed by no fault of the handler. The message comes
    /// back, whatever its retries and its ack policy are.
    pub(crate) fn put_off(source: impl Into<BoxError>) -> Self {
        let error = Self::new(Self::TRANSACTION, source);
        Self { verdict: Some(soon()), put_off: error.source.0.clone(), ..error }
    }

    /// The error for a message whose time was over before its handler could start. Its next claim
    /// finds that.
    pub(crate) fn late() -> Self {
        Self { verdict: Some(soon()), ..Self::of(LATE) }
    }

    /// Whether it was made by [`put_off`](Self::put_off) and still puts its message off, whatever
    /// kind it has become.
    pub(crate) fn is_put_off(&self) -> bool {
        self.why_put_off().is_some()
    }

    pub(crate) fn why_put_off(&self) -> Option<&Unbegun> {
        let snoozed = matches!(self.verdict, Some(Verdict::Snooze(_)));
        self.put_off.as_ref().filter(|_| snoozed)
    }

    /// Whether its cause is a transaction that the database could not begin, and nobody has
    /// rejected the message. A run without the transaction would be taken for done.
    pub(crate) fn has_no_transaction(&self) -> bool {
        self.put_off.is_some() && self.verdict != Some(Verdict::Reject)
    }

    /// What this error says, if it is a boxed `HandlerError`.
    pub(super) fn said_in(error: &(dyn Error + 'static)) -> Option<Said> {
        let Boxed(Self { kind, verdict, put_off, .. }) = error.downcast_ref()?;
        Some(Said { verdict: (*verdict)?, kind: kind.clone(), put_off: put_off.clone() })
    }

    /// Unboxes a `HandlerError`: a layer may hand on the one that it got.
    fn known(error: BoxError) -> Result<Self, BoxError> {
        error.downcast::<Boxed>().map(|boxed| boxed.0)
    }

    /// The error itself if it is a `HandlerError` already, else a new one of this kind.
    pub(crate) fn or_kind(kind: &'static str, error: impl Into<BoxError>) -> Self {
        Self::known(error.into()).unwrap_or_else(|error| Self::new(kind, error))
    }

    /// The error of a handler, with what it says about its message. Its kind is that of a
    /// [`Failure`](crate::Failure), or the name of its type.
    pub(crate) fn of<E: Into<BoxError>>(error: E) -> Self {
        Self::read(error.into(), kind_of::<E>)
    }

    /// Reads what an error says. `kind` gives its kind if it names none.
    fn read(source: BoxError, kind: fn(&(dyn Error + 'static)) -> Cow<'static, str>) -> Self {
        let source = match Self::known(source) {
            Ok(known) => return known,
            Err(source) => source,
        };
        let (verdict, kind, put_off) = match said_by(&*source) {
            Some(Said { verdict, kind, put_off }) => (Some(verdict), kind, put_off),
            None => (None, kind(&*source), None),
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

    /// The kind of the error:
    /// - `decode`, `extract`, `panic`, `publish`, `results`, `timeout` or `transaction`.
    /// - For the handler's own error, the variant of a [`Failure`](crate::Failure), or the name of
    ///   the type. A type named `Error` has its owner in front: `io::Error`.
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

/// The user's error. Shared, because every message of a batch has the error of the batch.
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

/// Drops a value of the user's. A panic of its destructor would take the results of other
/// messages with it.
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

/// Lets `?` work on every error, as in a handler. For that reason [`HandlerError`] is not an
/// `Error` itself. Boxed, it prints as the error that it was made from.
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

/// A [`HandlerError`] that goes through a `Result` of boxed errors, or is the source of another
/// error.
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

/// Turns an error into the text of `last_exception`. `None` stores no text.
///
/// Replace the default with `App::error_renderer` if the `Debug` form of your errors holds
/// personal data.
pub type ErrorRenderer = dyn Fn(&(dyn Error + 'static)) -> Option<String> + Send + Sync;

/// The default renderer: the `Debug` form of the error and of its sources.
#[allow(clippy::unnecessary_wraps, reason = "it is an `ErrorRenderer`")]
pub(crate) fn debug_chain(error: &(dyn Error + 'static)) -> Option<String> {
    let mut text = format!("{error:?}");
    // `anyhow` and `eyre` have written their causes already. A backtrace may follow these, and
    // what came after it would be taken for a part of it: see `fingerprint`.
    let mut cause = error.source().filter(|_| !text.contains("\n\nCaused by:"));
    while let Some(source) = cause {
        if text.len() > MAX_EXCEPTION_BYTES {
            break;
        }
        text = format!("{text}\ncaused by: {source:?}");
        cause = source.source();
    }
    Some(text)
}

/// Makes any text storable. NUL, which PostgreSQL refuses, becomes `␀`. The text is cut at
/// `limit` bytes on a character boundary.
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

    /// As `anyhow` does, with a backtrace behind them where the environment asks for it.
    struct TellsItsCauses(NoAccounts);

    impl fmt::Debug for TellsItsCauses {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "outer\n\nCaused by:\n    {}", self.0)
        }
    }

    impl fmt::Display for TellsItsCauses {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }

    impl Error for TellsItsCauses {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn causes_that_an_error_tells_itself_are_not_told_again() {
        let error = TellsItsCauses(NoAccounts("none".into()));
        assert_eq!(debug_chain(&error).as_deref(), Some("outer\n\nCaused by:\n    no accounts"));
        let told = debug_chain(&NoAccounts("none".into())).unwrap();
        assert_eq!(told, "NoAccounts(\"none\")\ncaused by: \"none\"");
    }
}
