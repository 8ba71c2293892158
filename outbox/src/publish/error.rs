//! Why a message was not published.

use std::time::{Duration, SystemTime};

use crate::error::{BoxError, StoreError};
use crate::store::names::NameError;

/// Why a message was not published.
///
/// All but [`PublishError::Store`] are found before the first statement, so the
/// caller's transaction is still usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// A queue or timer name is empty.
    #[error("the {0} name is empty")]
    EmptyName(&'static str),
    /// A queue or timer name is longer than its column.
    #[error("the {what} name has {chars} characters; at most 255 fit")]
    LongName {
        /// `queue` or `timer`.
        what: &'static str,
        /// Its length.
        chars: usize,
    },
    /// A text holds a NUL character, which PostgreSQL cannot store.
    #[error("the {0} holds a NUL character, which PostgreSQL cannot store")]
    Nul(&'static str),
    /// The payload is larger than [`Publisher::max_payload`](crate::Publisher::max_payload).
    #[error("the payload has {bytes} bytes; at most {max} are allowed (`Publisher::max_payload`)")]
    PayloadTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// One statement cannot carry all payloads of a batch, or of one delivery.
    #[error("the payloads have {bytes} bytes together; at most {max} are published at once")]
    BatchTooLarge {
        /// Their size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A header is nested too deep to be read again.
    #[error("a header is nested more than {max} deep")]
    HeaderTooDeep {
        /// The limit.
        max: u32,
    },
    /// The headers together are too large to be trusted to PostgreSQL.
    #[error("the headers have {bytes} bytes; at most {max} are allowed")]
    HeadersTooLarge {
        /// Their size, as JSON.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The value does not serialise.
    #[error("the payload does not serialise: {0}")]
    Encode(#[source] BoxError),
    /// Both a delay and a time were given.
    #[error("the message has both a delay and a time; give one")]
    DelayAndTime,
    /// The message would expire before it could run.
    #[error(
        "the message would expire after {limit:?} and be due after {delay:?}: both are counted from \
         now, so let it expire later"
    )]
    ExpiresUndue {
        /// When it is due.
        delay: Duration,
        /// When it expires.
        limit: Duration,
    },
    /// No message is due so late: the last moment is the first of the last second of the year 9999.
    #[error("the time {0:?} lies behind the year 9999, or in its last second")]
    TimeOutOfRange(SystemTime),
    /// A header contradicts the option of the same meaning, or names another content
    /// type for the JSON of [`Outgoing::new`](crate::Outgoing::new).
    #[error(
        "the header `{0}` contradicts the option of that name, or the JSON of `Outgoing::new`; leave it out"
    )]
    HeaderConflict(&'static str),
    /// The content type of an encoded value is read in another way than the value was
    /// written.
    #[error(
        "the payload was written as `{written}`, but the content type `{named}` is read in another way: \
         leave the content type out, or give `Outgoing::raw` the bytes"
    )]
    ContentType {
        /// The content type that was written.
        written: String,
        /// The content type that was named.
        named: String,
    },
    /// A header that is read as text has a value that is no string.
    #[error("the header `{0}` is not text, so nobody could read it; give a string")]
    HeaderNotText(&'static str),
    /// A header that is read as milliseconds has another value.
    #[error(
        "the header `{0}` is no number of milliseconds, so nobody could read it; call `expires_in`"
    )]
    HeaderNotMillis(&'static str),
    /// A conflict rule without a timer name.
    #[error("`TimerConflict` needs a timer name")]
    ConflictWithoutTimer,
    /// One batch, or what one delivery publishes with its ack, names a timer of a queue twice.
    #[error(
        "the timer {timer_id:?} of the queue {queue:?} is named by two messages that are written \
         at once; leave one of them out"
    )]
    TimerTwice {
        /// The queue.
        queue: String,
        /// The timer name.
        timer_id: String,
    },
    /// The message of this [`Tx`](crate::Tx) has the timer name until it is acked, at the
    /// end of the transaction.
    #[error(
        "the timer {timer_id:?} of the queue {queue:?} is the one that this handler's transaction \
         settles; `Publisher::collect` sets it again with the ack"
    )]
    OwnTimer {
        /// The queue.
        queue: String,
        /// The timer name.
        timer_id: String,
    },
    /// Messages can be collected only for the ack of a delivery.
    #[error(
        "a message can be collected only by the `Publisher` of a handler that has not ended and whose \
         row is not acked yet"
    )]
    NoDelivery,
    /// One of `OUTBOX_TABLE`, `OUTBOX_SCHEMA`, `OUTBOX_DLQ_TABLE`, `OUTBOX_NOTIFY` and
    /// `OUTBOX_PREPARED` cannot be used.
    #[error("the environment is wrong: {0}")]
    Names(#[from] NameError),
    /// One of several messages that are published together was refused, and so none is.
    #[error("message {number} of {count}: {source}")]
    OneOfMany {
        /// Which, counted from 1.
        number: usize,
        /// How many there are.
        count: usize,
        /// What is wrong with it.
        source: Box<PublishError>,
    },
    /// The statement failed. Roll the transaction back.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PublishError {
    /// Of a message that is published together with others: says which it was.
    pub(super) fn of_many(self, number: usize, count: usize) -> Self {
        if count == 1 { self } else { Self::OneOfMany { number, count, source: self.into() } }
    }

    /// The name of the variant, for the log: the text may hold words of the user.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::EmptyName(_) => "EmptyName",
            Self::LongName { .. } => "LongName",
            Self::Nul(_) => "Nul",
            Self::PayloadTooLarge { .. } => "PayloadTooLarge",
            Self::BatchTooLarge { .. } => "BatchTooLarge",
            Self::HeaderTooDeep { .. } => "HeaderTooDeep",
            Self::HeadersTooLarge { .. } => "HeadersTooLarge",
            Self::Encode(_) => "Encode",
            Self::DelayAndTime => "DelayAndTime",
            Self::ExpiresUndue { .. } => "ExpiresUndue",
            Self::TimeOutOfRange(_) => "TimeOutOfRange",
            Self::ContentType { .. } => "ContentType",
            Self::HeaderConflict(_) => "HeaderConflict",
            Self::HeaderNotText(_) => "HeaderNotText",
            Self::HeaderNotMillis(_) => "HeaderNotMillis",
            Self::ConflictWithoutTimer => "ConflictWithoutTimer",
            Self::TimerTwice { .. } => "TimerTwice",
            Self::OwnTimer { .. } => "OwnTimer",
            Self::NoDelivery => "NoDelivery",
            Self::Names(_) => "Names",
            Self::OneOfMany { source, .. } => source.kind(),
            Self::Store(_) => "Store",
        }
    }
}
