//! Errors that say what they mean for their messages.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::failure::{HandlerError, Unbegun};
use super::kind::kind_of;
use crate::error::BoxError;

/// What an error means for the message that was being handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Failed: the retry strategy decides.
    Retry,
    /// Failed: if the retry strategy allows one more run, it is due after this long.
    RetryAfter(Duration),
    /// Failed for good: no retry.
    Reject,
    /// Not now: due again after this long. Neither an attempt nor a delivery is spent.
    Snooze(Duration),
}

/// What the derive adds to an implementation of `Failure`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not derive `Failure`",
    label = "its verdict would not be found",
    note = "an error is boxed before it is judged, and only the types of enums with `#[derive(Failure)]` are looked for; elsewhere use `.or_reject()` or `.or_snooze(..)`"
)]
pub trait Derived {}

#[doc = include_str!("../docs/failure.md")]
pub trait Failure: Derived + Error + Send + Sync + 'static {
    /// What this error means.
    fn verdict(&self) -> Verdict;

    /// The kind for the dead letter and the events: the name of the variant.
    fn kind(&self) -> &'static str;
}

/// What `#[derive(Failure)]` submits: it reads the verdict and the kind of an error of its type.
///
/// An error is boxed by the time it is judged, and may have passed through `?`. So its type has
/// to be looked for.
pub struct KnownFailure(pub fn(&(dyn Error + 'static)) -> Option<(Verdict, &'static str)>);

inventory::collect!(KnownFailure);

/// What an error says about its message.
#[derive(Clone)]
pub(super) struct Said {
    pub(super) verdict: Verdict,
    /// The kind of the error.
    pub(super) kind: Cow<'static, str>,
    /// Why the database could not begin or commit a transaction, if it stems from that.
    pub(super) put_off: Option<Unbegun>,
}

/// So many errors of a chain are looked at. One that is its own source, by mistake, has no end.
const CHAIN: usize = 64;

/// The first verdict in the chain of an error.
pub(super) fn said_by(error: &(dyn Error + 'static)) -> Option<Said> {
    let mut first: Option<Said> = None;
    for error in std::iter::successors(Some(error), |&error| error.source()).take(CHAIN) {
        let marked = error.downcast_ref::<Mark>().map(|mark| mark.said.clone());
        if let Some(said) = marked.or_else(|| HandlerError::said_in(error)) {
            // Only such an error knows whether it was put off.
            return Some(match first {
                Some(first) => Said { put_off: said.put_off, ..first },
                None => said,
            });
        }
        if first.is_none() {
            let known = inventory::iter::<KnownFailure>().find_map(|known| known.0(error));
            first = known.map(|(verdict, kind)| Said { verdict, kind: kind.into(), put_off: None });
        }
    }
    first
}

/// Says what an error means for its message: `.or_reject()` and `.or_snooze(..)` on any `Result`.
///
/// # Examples
/// ```
/// use outbox::OrVerdict;
/// use std::time::Duration;
///
/// async fn import(path: String) -> anyhow::Result<()> {
///     // Nobody mends a wrong number by trying again.
///     let number: u32 = path.parse().or_reject()?;
///     // The other side is closed at night.
///     let text = ask(number).or_snooze(Duration::from_secs(3600))?;
///     println!("{number} {text}");
///     Ok(())
/// }
/// # fn ask(number: u32) -> std::io::Result<u32> { Ok(number) }
/// ```
pub trait OrVerdict<T> {
    /// Makes an error terminal: `rejected`.
    ///
    /// # Errors
    /// Returns the same error, marked.
    fn or_reject(self) -> Result<T, Judged>;

    /// On an error, makes the message due again after `delay`. Neither an attempt nor a delivery is
    /// spent. That repeats for as long as it takes, unless the message
    /// [expires](crate::Outgoing::expires_in).
    ///
    /// # Errors
    /// Returns the same error, marked.
    fn or_snooze(self, delay: Duration) -> Result<T, Judged>;
}

impl<T, E: Into<BoxError>> OrVerdict<T> for Result<T, E> {
    fn or_reject(self) -> Result<T, Judged> {
        self.map_err(|error| Judged::new(error, Verdict::Reject))
    }

    fn or_snooze(self, delay: Duration) -> Result<T, Judged> {
        self.map_err(|error| Judged::new(error, Verdict::Snooze(delay)))
    }
}

/// An error with a verdict, made by [`OrVerdict`]. It prints as the error itself.
pub struct Judged(Mark);

/// Stands between a [`Judged`] and the sources of its error. If the `Judged` went into another
/// error, as `anyhow`'s, only its sources can be seen.
struct Mark {
    error: BoxError,
    said: Said,
}

impl Judged {
    fn new<E: Into<BoxError>>(error: E, verdict: Verdict) -> Self {
        let error = match error.into().downcast::<Self>() {
            // The same error, marked once more: the last verdict counts.
            Ok(judged) => {
                let Mark { error, said } = judged.0;
                return Self(Mark { error, said: Said { verdict, ..said } });
            }
            Err(error) => error,
        };
        let said = match said_by(&*error) {
            Some(said) => Said { verdict, ..said },
            None => Said { verdict, kind: kind_of::<E>(&*error), put_off: None },
        };
        Self(Mark { error, said })
    }

    /// The error itself.
    pub(super) fn into_inner(self) -> BoxError {
        self.0.error
    }
}

impl fmt::Debug for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.error, f)
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.error, f)
    }
}

impl Error for Judged {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the handler said {:?}", self.said.verdict)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for Mark {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
