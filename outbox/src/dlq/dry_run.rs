//! The dry run of a letter: its handler runs, and its transaction is rolled back.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{DeadLetters, Kept, Letter, Opened, Status};
use crate::app::App;
use crate::engine::{Rehearsed, Settlement, rehearse};
use crate::error::{Error, Result};
use crate::message::headers::{LETTER, ORIGINAL_ID, REPLAYS};
use crate::message::{FailureReason, Row, Stored};
use crate::ops::json;
use crate::publish::{Due, Prepared};
use crate::redacted::debug_only;

/// The result of [`App::dry_run`]. `Debug` leaves out the text of the error.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct DryRun {
    /// The subscriber that ran.
    pub subscriber: String,
    /// How a replay would end now.
    pub outcome: DryOutcome,
    /// The kind of the error, and its text as it would be stored.
    pub error: Option<(String, String)>,
    /// What the handler published in its transaction, or returned, if its message would be acked:
    /// otherwise nothing is published. All of it is undone. What it publishes in a savepoint is not
    /// listed, and a timer is whose name turns out to be taken.
    pub published: Vec<WouldBe>,
}

debug_only!(tried: DryRun =>
    subscriber, outcome, error_kind = tried.error.as_ref().map(|(kind, _)| kind), published
);

/// How a delivery would end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DryOutcome {
    /// The message would be acked.
    Acked,
    /// The message would be tried again after this time.
    Retried(Duration),
    /// The message would be put off for this time, without an attempt spent.
    Snoozed(Duration),
    /// The message would be a dead letter again, for this reason.
    Dead(FailureReason),
}

/// A message that the handler would have published, without its payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WouldBe {
    /// Its queue.
    pub queue: String,
    /// Size of its payload.
    pub payload_bytes: u64,
    /// Its timer name.
    pub timer_id: Option<String>,
    /// After what time it would be due; `None`: at once.
    #[serde(serialize_with = "json::maybe_seconds")]
    pub delay: Option<Duration>,
}

impl App {
    /// Tries a dead letter: runs this app's handler on it in a transaction that is rolled back,
    /// and says how a replay would end. The letter stays as it is.
    ///
    /// The trial also finds what would make the commit fail. It publishes the messages that the
    /// handler returns, and on PostgreSQL it checks deferred constraints. (On SQLite only a commit
    /// checks them.)
    ///
    /// What the handler does outside of its transaction is not undone: a mail that it sends is
    /// sent. So only handlers that take [`Tx`](crate::Tx) can be tried.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn try_it(app: outbox::App) -> outbox::Result<()> {
    /// let trial = app.dry_run(7).await?;
    /// println!("{:?}, and {} messages", trial.outcome, trial.published.len());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - `Error::Untried`, with the reason, when there is no such open letter, when a live row has
    ///   its timer name, or when its queue has no subscriber or one that cannot be tried.
    /// - Other errors when the environment or the database does not work.
    ///
    /// # Cancel safety
    /// A dropped call rolls the transaction back.
    pub async fn dry_run(&self, letter: i64) -> Result<DryRun> {
        let letters: DeadLetters = self.operator()?.dead_letters();
        let refused = |why: String| Err(Error::Untried(why));
        let Some(opened) = letters.show(letter).await? else {
            return refused(format!("there is no dead letter {letter}"));
        };
        let queue = &opened.letter.queue;
        if opened.letter.status != Status::Failed {
            let done = opened.letter.status;
            return refused(format!("letter {letter} would not be replayed: it is {done} already"));
        }
        if let Some(timer) = &opened.letter.timer_id
            && letters.has_timer(queue, timer).await?
        {
            return refused(format!(
                "letter {letter} would not be replayed: {}",
                Kept::TimerIsLive
            ));
        }
        let subscribers = self.subscribers();
        let Some(subscriber) = subscribers.iter().find(|one| one.queues().contains(queue)) else {
            return refused(format!(
                "letter {letter} cannot be tried: no subscriber of this program reads the queue \
                 `{queue}`"
            ));
        };
        if !subscriber.takes_transaction() {
            return refused(format!(
                "letter {letter} cannot be tried: the subscriber `{}` ({}) does not take `Tx`, so \
                 what it does could not be undone",
                subscriber.name(),
                subscriber.origin()
            ));
        }
        let states = self.lending_states();
        let problems = subscriber.problems(&states);
        if !problems.is_empty() {
            return Err(Error::Config(problems));
        }
        let now = letters.now().await?;
        let row = row_of(opened, now);
        let Rehearsed { settlement, error, messages, undone } =
            rehearse(subscriber, &states, &self.publisher(), self.renderer(), row).await;
        let name = subscriber.name();
        if !undone && error.is_none() {
            crate::telemetry::warn!(
                target: crate::telemetry::TARGET, subscriber = name,
                "a handler in a dry run did not use its transaction; what it did was not rolled back"
            );
        }
        let would_be = messages.into_iter().map(|message| WouldBe::of(message, now)).collect();
        Ok(DryRun {
            subscriber: name.into(),
            outcome: outcome(&settlement),
            error,
            published: would_be,
        })
    }
}

/// The headers that a replay writes. Anything that is not a JSON object counts as an empty one.
fn replayed(letter: &Letter, headers: Option<&str>) -> String {
    let text = |value: &RawValue| match serde_json::from_str(value.get()).ok()? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    };
    let mut all: BTreeMap<String, Box<RawValue>> =
        headers.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let is_count = |text: &String| text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    let replays = all.get(REPLAYS).and_then(|value| text(value)).filter(is_count);
    let replays = replays.and_then(|text| text.parse().ok()).unwrap_or(0_u64) + 1;
    let original = all.get(ORIGINAL_ID).and_then(|value| text(value));
    let original = original.unwrap_or_else(|| letter.original_id.to_string());
    let new =
        [(ORIGINAL_ID, original), (REPLAYS, replays.to_string()), (LETTER, letter.id.to_string())];
    let raw = |text: &String| serde_json::value::to_raw_value(text).ok();
    all.extend(new.iter().filter_map(|(name, text)| Some(((*name).to_owned(), raw(text)?))));
    serde_json::to_string(&all).unwrap_or_default()
}

/// The row that a replay would make, except that its id is that of the letter's row.
fn row_of(opened: Opened, now: SystemTime) -> Row {
    let headers = replayed(&opened.letter, opened.headers.as_deref());
    let letter = opened.letter;
    Row {
        deliveries_count: 1,
        acquired_at: Some(now),
        timer_id: letter.timer_id,
        headers: Some(Stored::Text(headers.into())),
        ..Row::fresh(letter.original_id, letter.queue, opened.payload, now)
    }
}

fn outcome(settlement: &Settlement) -> DryOutcome {
    match settlement {
        Settlement::Ack { .. } => DryOutcome::Acked,
        Settlement::Retry { delay } => DryOutcome::Retried(*delay),
        Settlement::Dead(cause) => DryOutcome::Dead(cause.reason),
        Settlement::Release { due_in } => DryOutcome::Snoozed(due_in.unwrap_or_default()),
        // Nobody claims on trial, and no drain is under way.
        Settlement::Kept | Settlement::Condemned | Settlement::Abandon | Settlement::Lost => {
            DryOutcome::Snoozed(Duration::ZERO)
        }
    }
}

impl WouldBe {
    fn of(message: Prepared, now: SystemTime) -> Self {
        let delay = match message.due {
            Due::Now => None,
            Due::In(delay) => Some(delay),
            Due::At(time) => Some(time.duration_since(now).unwrap_or_default()),
        };
        Self {
            queue: message.queue,
            payload_bytes: message.payload.len() as u64,
            timer_id: message.timer_id,
            delay,
        }
    }
}
