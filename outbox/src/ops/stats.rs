//! How much lies in each queue, and how fast that changes.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::{Operator, json, on_desk};
use crate::error::Result;

/// How many rows of each queue are counted unless all are asked for.
const BOUND: u64 = 100_000;
/// How many queues a sample has at most.
const QUEUES: u32 = 1000;
/// One tick of SQLite's clock: no shorter time can be measured.
const TICK: Duration = Duration::from_millis(1);

/// What [`Operator::sample`] counts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleOptions {
    /// How many rows, and how many dead letters, are read of each queue at most; 100,000 by
    /// default. `None` reads all, however many there are.
    pub bound: Option<u64>,
    /// Counts only these queues. Empty, the default, means all queues that have rows or open dead
    /// letters or are paused, at most 1,000.
    pub queues: Vec<String>,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self { bound: Some(BOUND), queues: Vec::new() }
    }
}

impl SampleOptions {
    /// Counts everything, however long it takes.
    #[must_use]
    pub fn exact(self) -> Self {
        Self { bound: None, ..self }
    }

    /// Counts these queues only.
    #[must_use]
    pub fn of(self, queues: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { queues: queues.into_iter().map(Into::into).collect(), ..self }
    }
}

/// What the tables held at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// When it was taken, by the database's clock.
    #[serde(serialize_with = "json::time")]
    pub at: SystemTime,
    /// The last id that was given out to a message, on PostgreSQL committed or not; `None` if it
    /// cannot be known.
    pub last_id: Option<i64>,
    /// The queues, by name.
    pub queues: Vec<QueueSample>,
    /// Whether there are more queues than these.
    pub more_queues: bool,
    /// Whether the queues were named. Published messages are counted over all queues even so.
    #[serde(skip)]
    pub(crate) named: bool,
}

/// What a queue held at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueSample {
    /// Its name.
    pub queue: String,
    /// Rows that no claim holds, due or not yet due.
    pub waiting: u64,
    /// How many of the waiting rows are due.
    pub due: u64,
    /// Rows that a claim holds, whether or not its lease has run out.
    pub leased: u64,
    /// Rows, waiting or leased, whose handler has failed before.
    pub retrying: u64,
    /// For how long the oldest waiting row has been due.
    #[serde(serialize_with = "json::maybe_seconds", rename = "oldest_seconds")]
    pub oldest: Option<Duration>,
    /// Whether the queue has more rows than were read. The counts are then of the first rows, in
    /// the order in which they are claimed, and there may be more.
    pub bounded: bool,
    /// Dead letters that are neither resolved nor ignored.
    pub dead_letters: u64,
    /// Whether there are more of them.
    pub dead_letters_bounded: bool,
    /// Since when it is paused; `None` if it is not.
    #[serde(serialize_with = "json::maybe_time")]
    pub paused_at: Option<SystemTime>,
}

/// How fast the tables changed between two samples. No rate is known if the clock of the
/// database went back between them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rates {
    /// The time between the samples; zero if the clock went back.
    #[serde(serialize_with = "json::seconds", rename = "over_seconds")]
    pub over: Duration,
    /// Messages published a second, by the ids that were given out. The publish of a timer that
    /// was there already counts, and on PostgreSQL so does a publish that was rolled back. `None` if
    /// the ids cannot be known, or began again.
    pub published_per_second: Option<f64>,
    /// Rows that left the table a second, in whatever way: the published messages less the growth.
    /// So an id without a row counts here, too. `None` if a count was bounded, if queues were
    /// named, or if not all queues were counted.
    pub ended_per_second: Option<f64>,
    /// The rates of each queue of the later sample.
    pub queues: Vec<QueueRates>,
}

/// How fast a queue changed between two samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueRates {
    /// Its name.
    pub queue: String,
    /// By how many rows it grows a second; below zero when it shrinks. `None` if a count was
    /// bounded.
    pub growth_per_second: Option<f64>,
    /// By how many open dead letters it grows a second; below zero when more are dealt with than
    /// arrive. `None` if a count was bounded.
    pub dead_letters_per_second: Option<f64>,
}

impl Operator {
    /// Counts what is in the tables, queue by queue. Unless all rows are asked for, it reads a
    /// bounded number of rows of each queue, by index.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # #[cfg(feature = "sqlite")] {
    /// use outbox::ops::SampleOptions;
    /// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
    /// # let operator = outbox::ops::Operator::sqlite(pool, outbox::TableNames::default());
    /// # operator.migrate().await?;
    ///
    /// let before = operator.sample(&SampleOptions::default()).await?;
    /// operator.publish(outbox::Outgoing::new("orders", &7)).await?;
    /// let after = operator.sample(&SampleOptions::default()).await?;
    /// assert_eq!((before.queues.len(), after.queues[0].due), (0, 1));
    /// assert!(after.rates_since(&before).published_per_second > Some(0.0));
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When a table is missing or the database fails.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn sample(&self, options: &SampleOptions) -> Result<Sample> {
        // Before the counts: a message that is published meanwhile does not count as ended.
        let (at, last_id) = on_desk!(self, desk => desk.given_out().await)?;
        let mut names = options.queues.clone();
        let mut more_queues = false;
        let chosen = !names.is_empty();
        if !chosen {
            let found = self.queues(QUEUES + 1).await?;
            more_queues = found.len() > QUEUES as usize;
            names.extend(found.into_iter().take(QUEUES as usize).map(|one| one.queue));
        }
        names.sort_unstable();
        names.dedup();
        let bound =
            options.bound.map(|bound| i64::try_from(bound).unwrap_or(i64::MAX).min(i64::MAX - 1));
        let counted = on_desk!(self, desk => desk.counts(&names, bound.map(|it| it + 1)).await)?;
        let mut queues: Vec<_> = counted.into_iter().map(|one| one.within(options.bound)).collect();
        for pause in self.paused().await? {
            if let Some(paused) = queues.iter_mut().find(|one| one.queue == pause.queue) {
                paused.paused_at = Some(pause.paused_at);
            }
        }
        Ok(Sample { at, last_id, queues, more_queues, named: chosen })
    }
}

/// What a statement counted. It reads one row more than the bound.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) sample: QueueSample,
    pub(crate) rows: u64,
}

impl Counted {
    fn within(self, bound: Option<u64>) -> QueueSample {
        let Self { mut sample, rows } = self;
        let Some(bound) = bound else { return sample };
        sample.bounded = rows > bound;
        sample.dead_letters_bounded = sample.dead_letters > bound;
        for count in [
            &mut sample.waiting,
            &mut sample.due,
            &mut sample.leased,
            &mut sample.retrying,
            &mut sample.dead_letters,
        ] {
            *count = bound.min(*count);
        }
        sample
    }
}

impl Sample {
    /// How fast the tables changed from an earlier sample of the same queues to this.
    #[must_use]
    pub fn rates_since(&self, earlier: &Self) -> Rates {
        let over = self.at.duration_since(earlier.at).ok();
        let a_second = |more: i64| Some(more as f64 / over?.max(TICK).as_secs_f64());
        let published = self.last_id.zip(earlier.last_id).map(|(last, first)| last - first);
        // Ids that begin again say nothing.
        let published = published.filter(|more| *more >= 0);
        let exact = ![self, earlier].iter().any(|one| one.more_queues || one.named);
        let grown = exact.then(|| Some(self.rows()? - earlier.rows()?)).flatten();
        let queues = self.queues.iter().map(|now| {
            let before = earlier.queues.iter().find(|one| one.queue == now.queue);
            // A queue that was not listed may have been left out.
            let none = (!earlier.more_queues).then_some(0);
            let rows = before.map_or(none, QueueSample::rows);
            let letters = before.map_or(none, QueueSample::letters);
            let more = |now: Option<i64>, before: Option<i64>| a_second(now? - before?);
            QueueRates {
                queue: now.queue.clone(),
                growth_per_second: more(now.rows(), rows),
                dead_letters_per_second: more(now.letters(), letters),
            }
        });
        Rates {
            over: over.unwrap_or_default(),
            published_per_second: published.and_then(a_second),
            ended_per_second: published
                .zip(grown)
                .and_then(|(came, more)| a_second((came - more).max(0))),
            queues: queues.collect(),
        }
    }

    fn rows(&self) -> Option<i64> {
        self.queues.iter().map(QueueSample::rows).sum()
    }
}

impl QueueSample {
    fn rows(&self) -> Option<i64> {
        let rows = i64::try_from(self.waiting + self.leased).unwrap_or(i64::MAX);
        (!self.bounded).then_some(rows)
    }

    fn letters(&self) -> Option<i64> {
        let letters = i64::try_from(self.dead_letters).unwrap_or(i64::MAX);
        (!self.dead_letters_bounded).then_some(letters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: SystemTime, waiting: u64) -> Sample {
        let queue = QueueSample {
            queue: "orders".into(),
            waiting,
            due: 0,
            leased: 0,
            retrying: 0,
            oldest: None,
            bounded: false,
            dead_letters: waiting,
            dead_letters_bounded: false,
            paused_at: None,
        };
        let last_id = i64::try_from(waiting).ok();
        Sample { at, last_id, queues: vec![queue], more_queues: false, named: false }
    }

    #[test]
    fn over_a_clock_that_went_back_no_rate_is_known() {
        let second = Duration::from_secs(1);
        let noon = SystemTime::UNIX_EPOCH + 60 * second;
        let rates = sample(noon - second, 8).rates_since(&sample(noon, 4));
        let known = (rates.published_per_second, rates.ended_per_second);
        assert_eq!((rates.over, known), (Duration::ZERO, (None, None)));
        let [orders] = &rates.queues[..] else { panic!("{rates:?}") };
        assert_eq!((orders.growth_per_second, orders.dead_letters_per_second), (None, None));
        // A shorter time than one tick of the clock counts as one tick.
        let rates = sample(noon, 8).rates_since(&sample(noon, 4));
        assert_eq!((rates.published_per_second, rates.ended_per_second), (Some(4000.0), Some(0.0)));
    }

    #[test]
    fn of_ids_that_begin_again_no_rate_is_known() {
        let second = Duration::from_secs(1);
        let noon = SystemTime::UNIX_EPOCH + 60 * second;
        let rates = sample(noon, 4).rates_since(&sample(noon - second, 8));
        assert_eq!((rates.published_per_second, rates.ended_per_second), (None, None));
    }
}
