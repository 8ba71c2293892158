//! Why a row is where it is.

mod answer;
mod judge;
mod told;

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use tokio::time::{Instant, sleep};

pub use answer::{Answer, Extension, Letter, Session, Sureness};
pub(crate) use judge::{BEFORE, FoundRow, LockedBy, Readers};
pub use told::Told;
#[cfg(feature = "postgres")]
pub(crate) use told::locked;

use super::{Operator, json, on_desk};
use crate::app::App;
use crate::error::Result;
use crate::store::is_alone;
use crate::subscriber::LONGEST;

/// How many dead letters are looked at unless all are asked for.
const LETTERS: u64 = 100_000;
/// The time between two looks at a lease that is watched.
const LOOK: Duration = Duration::from_millis(200);

/// The options of [`Operator::why`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhyOptions {
    /// How many dead letters to look at, the newest first; 100,000 by default, `None` for all. No
    /// index leads from the id of a row to its letter, so a million letters take a second or more.
    pub letters: Option<u64>,
    /// How long to watch whether a lease is extended; not at all by default. A process that lives
    /// extends it at the latest when half of its time is over.
    pub watch: Duration,
    handlers: Option<Vec<Handler>>,
}

/// What is known of a subscriber of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handler {
    queue: String,
    name: &'static str,
    lease_ttl: Duration,
}

impl Default for WhyOptions {
    fn default() -> Self {
        Self { letters: Some(LETTERS), watch: Duration::ZERO, handlers: None }
    }
}

impl WhyOptions {
    /// Looks at all dead letters.
    #[must_use]
    pub fn all_letters(self) -> Self {
        Self { letters: None, ..self }
    }

    /// Watches for this long whether a lease is extended.
    #[must_use]
    pub fn watching(self, watch: Duration) -> Self {
        Self { watch, ..self }
    }

    /// Takes into account the subscribers of this app: which queues they read, and how long their
    /// leases are. An app without subscribers changes nothing.
    #[must_use]
    pub fn with_handlers_of(self, app: &App) -> Self {
        let all = app.subscribers();
        let handlers = all.iter().flat_map(|one| {
            let of = |queue: &String| Handler {
                queue: queue.clone(),
                name: one.name(),
                lease_ttl: one.options.lease_ttl,
            };
            one.queues().iter().map(of)
        });
        let handlers: Vec<_> = handlers.collect();
        Self { handlers: (!handlers.is_empty()).then_some(handlers), ..self }
    }
}

/// Why a row is where it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Why {
    /// The id that was asked about.
    pub id: i64,
    /// Its row, if it is there.
    pub row: Option<WhyRow>,
    /// All reasons that apply, the one that decides first. Never empty.
    #[serde(serialize_with = "with_words")]
    pub answers: Vec<Answer>,
}

/// The row that was asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WhyRow {
    /// Its queue.
    pub queue: String,
    /// When it was published.
    #[serde(serialize_with = "json::time")]
    pub created_at: SystemTime,
    /// Failed runs of its handler.
    pub attempts: u64,
    /// Claims of the row. A claim that was given back unstarted, snoozed or put off does not count.
    pub deliveries: u64,
    /// Its timer name.
    pub timer_id: Option<String>,
}

impl Why {
    /// Whether the id was ever given out to a message, as far as can be known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.answers.iter().any(|one| matches!(one, Answer::NeverGivenOut { .. }))
            || self.answers.iter().any(|one| matches!(one, Answer::Uncommitted { .. }))
    }
}

/// Each answer with its words beside it.
fn with_words<S: Serializer>(answers: &[Answer], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Both<'a> {
        #[serde(flatten)]
        answer: &'a Answer,
        #[serde(flatten)]
        told: Told,
    }
    to.collect_seq(answers.iter().map(|answer| Both { answer, told: answer.told() }))
}

impl Operator {
    /// Says why a row is where it is: all reasons that apply, the one that decides first. It
    /// changes nothing. On PostgreSQL it may lock the row for a moment, to see whether somebody else
    /// has: a row that was claimed or otherwise locked before. A claim at that moment passes the row by,
    /// and the next one takes it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # #[cfg(feature = "sqlite")] {
    /// use outbox::Outgoing;
    /// use outbox::ops::{Answer, WhyOptions};
    /// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
    /// # let operator = outbox::ops::Operator::sqlite(pool, outbox::TableNames::default());
    /// # operator.migrate().await?;
    ///
    /// let id = operator.publish(Outgoing::new("orders", &7)).await?.id().unwrap();
    /// operator.pause(&["orders"], None).await?;
    /// let why = operator.why(id, &WhyOptions::default()).await?;
    /// assert!(matches!(why.answers[0], Answer::Paused { .. }));
    /// println!("{}", why.answers[0].told().next);
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When a table is missing or the database fails. An id that nobody knows is no error: see
    /// [`Why::is_known`].
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn why(&self, id: i64, options: &WhyOptions) -> Result<Why> {
        let found = match on_desk!(self, desk => desk.why_row(id).await) {
            Ok(found) => found,
            // It waited for a lock that somebody held too long.
            Err(error) if error.has_code(&["55P03"]) => {
                let by = on_desk!(self, desk => desk.why_table_locked().await)?;
                let answers = vec![Answer::TableLocked { by: by.unwrap_or_default() }];
                return Ok(Why { id, row: None, answers });
            }
            Err(error) => return Err(error.into()),
        };
        let Some(found) = found else {
            let answers = self.why_absent(id, options).await?;
            let letter = answers.iter().any(|one| matches!(one, Answer::DeadLetter(_)));
            // The row's transaction may have ended while its writers were looked for.
            if !letter && let Ok(Some(found)) = on_desk!(self, desk => desk.why_row(id).await) {
                return self.why_there(found, options).await;
            }
            return Ok(Why { id, row: None, answers });
        };
        self.why_there(found, options).await
    }

    async fn why_there(&self, found: FoundRow, options: &WhyOptions) -> Result<Why> {
        let id = found.row.id;
        let (found, alive) = self.watched(found, options).await?;
        let handler = options.of(&found.row.queue);
        let mut judged = judge::Judged::new(&found, handler, alive);
        judged.locks = on_desk!(self, desk => desk.why_locks(&found).await)?;
        if !judged.is_leased() {
            judged.readers = Some(on_desk!(self, desk => {
                desk.why_readers(&found.row.queue, id, 2 * judged.lease_ttl()).await
            })?);
            judged.before = Some(on_desk!(self, desk => desk.why_before(&found.row).await)?);
        }
        let row = WhyRow {
            queue: found.row.queue.clone(),
            created_at: found.row.created_at,
            attempts: found.row.attempts_count,
            deliveries: found.row.deliveries_count,
            timer_id: found.row.timer_id.clone(),
        };
        let answers = judged.answers(options.handlers.is_some().then_some(handler.is_some()));
        Ok(Why { id, row: Some(row), answers })
    }

    /// Looks at a leased row until its lease is extended or given up, or the time is over. Says
    /// whether the lease was extended or the row is gone. An extension changes the token only where
    /// a row begins or ends to run alone: another token is that of another claim.
    async fn watched(&self, first: FoundRow, options: &WhyOptions) -> Result<(FoundRow, bool)> {
        let end = Instant::now() + options.watch.min(LONGEST);
        while first.row.acquired_token.is_some() && Instant::now() < end {
            sleep(LOOK.min(end - Instant::now())).await;
            let Some(now) = on_desk!(self, desk => desk.why_row(first.row.id).await)? else {
                return Ok((first, true));
            };
            let lease = |found: &FoundRow| (found.row.acquired_token, found.row.acquired_at);
            if lease(&now) != lease(&first) {
                let tokens = first.row.acquired_token.zip(now.row.acquired_token);
                let extended = |(a, b)| a == b || is_alone(a) != is_alone(b);
                return Ok((now, tokens.is_some_and(extended)));
            }
            if Instant::now() >= end {
                return Ok((now, false));
            }
        }
        Ok((first, false))
    }

    async fn why_absent(&self, id: i64, options: &WhyOptions) -> Result<Vec<Answer>> {
        let (_, last_id) = on_desk!(self, desk => desk.given_out().await)?;
        let limit = options.letters.map(|most| i64::try_from(most).unwrap_or(i64::MAX));
        let letters = on_desk!(self, desk => desk.why_letters(id, limit).await)?;
        let (own, origins): (Vec<_>, Vec<_>) =
            letters.into_iter().partition(|letter| letter.original_id == id);
        let mut answers: Vec<_> = own.into_iter().map(Answer::DeadLetter).collect();
        if answers.is_empty() {
            let given_out = id > 0 && last_id.is_none_or(|last| id <= last);
            let open = on_desk!(self, desk => desk.why_uncommitted(id, given_out).await)?;
            answers.extend(open.map(|writers| Answer::Uncommitted { writers }));
            let more = match limit {
                Some(limit) => on_desk!(self, desk => desk.why_more_letters(limit).await)?,
                None => false,
            };
            let letters_read = options.letters.filter(|_| more);
            answers.push(match last_id {
                Some(last_id) if !given_out => Answer::NeverGivenOut { last_id },
                _ => Answer::Gone { last_id, letters_read },
            });
        }
        answers.extend(origins.into_iter().map(Answer::ReplayOf));
        Ok(answers)
    }
}

impl WhyOptions {
    fn of(&self, queue: &str) -> Option<&Handler> {
        self.handlers.iter().flatten().find(|one| one.queue == queue)
    }
}
