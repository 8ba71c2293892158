//! Replays letters: puts their messages back into the outbox.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::audit::Audit;
use super::canary::{Canary, CanaryOutcome};
use super::{BATCH, DeadLetters, Filter, LetterPosition, Status};
use crate::error::{Error, Result};
use crate::ops::on_desk;
use crate::publish::{MAX_PAYLOAD, PublishError, check_name};
use crate::redacted::debug_only;
use crate::subscriber::LONGEST;

/// The options of a replay. By default it replays all letters of the filter, as they are and as
/// fast as it can.
///
/// # Examples
/// ```
/// use outbox::dlq::{Canary, Replay};
///
/// // Ten first; if more than two of them fail again, no more.
/// let careful = Replay::new().limit(5_000).per_second(50.0).canary(Canary::new(10, 0.2));
/// # let _ = careful;
/// ```
///
/// `Debug` prints the size of the payload, not the payload.
#[derive(Clone, Default)]
#[must_use]
pub struct Replay {
    pub(super) limit: Option<u64>,
    pub(crate) queue: Option<String>,
    pub(crate) payload: Option<Bytes>,
    pub(super) per_second: Option<f64>,
    pub(super) canary: Option<Canary>,
}

debug_only!(replay: Replay =>
    limit, queue, payload_bytes = replay.payload.as_ref().map(Bytes::len), per_second, canary
);

/// What became of one letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// The id of the letter.
    pub letter: i64,
    /// The id of the row that holds its message now, or why the letter was not replayed.
    pub row: std::result::Result<i64, Kept>,
}

/// Why a letter was not replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Kept {
    /// A live row of the queue has its timer name.
    #[error("a live row of the queue has its timer name; handle or cancel that one first")]
    TimerIsLive,
    /// An older letter has the same id. Two may have it in a table of months whose ids began again.
    #[error("an older letter with the same id went first; try again")]
    SameId,
    /// Another transaction has it locked, perhaps another replay.
    #[error("another transaction has it locked; try again")]
    Locked,
    /// It was dealt with before, and has this status.
    #[error("it is {0} already")]
    Done(Status),
    /// Its id was named, but another condition of the filter leaves it out: for example, it is
    /// of another queue.
    #[error("it is there, but another condition of the filter leaves it out")]
    LeftOut,
    /// There is no letter with this id.
    #[error("there is no such letter")]
    Unknown,
}

/// What a replay did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayReport {
    /// Letters whose messages are in the outbox again.
    pub replayed: u64,
    /// Letters that stayed as they were.
    pub kept: u64,
    /// How many of these other transactions had locked. Only counted for a filter without ids.
    pub locked: u64,
    /// How the canary ended, if there was one.
    pub canary: Option<CanaryOutcome>,
}

impl ReplayReport {
    /// Whether the canary kept the other letters from being replayed.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.canary.is_some_and(|canary| !canary.passed)
    }
}

impl Replay {
    /// Replays all letters, as they are.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replays at most this many letters, the oldest first.
    pub fn limit(mut self, letters: u64) -> Self {
        self.limit = Some(letters);
        self
    }

    /// Puts the messages into this queue, not into the one that they came from.
    pub fn to_queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Replaces the payload of the message; only for a filter with one id. The letter keeps its
    /// own.
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// Replays at most this many letters a second.
    pub fn per_second(mut self, letters: f64) -> Self {
        self.per_second = Some(letters);
        self
    }

    /// Replays a few letters first. The others follow only if not too many of those fail again.
    pub fn canary(mut self, canary: Canary) -> Self {
        self.canary = Some(canary);
        self
    }

    /// Fails with everything that is wrong with the options, before the first statement.
    pub(super) fn check(&self, filter: &Filter) -> Result<()> {
        let wrong = self.problems(filter);
        if wrong.is_empty() { Ok(()) } else { Err(Error::Config(wrong)) }
    }

    /// Everything that is wrong with the options, a sentence each.
    pub(crate) fn problems(&self, filter: &Filter) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Some(queue) = &self.queue
            && let Err(error) = check_name("queue", queue)
        {
            wrong.push(error.to_string());
        }
        let one = filter.ids.as_ref().is_some_and(|ids| ids.len() == 1);
        if self.payload.is_some() && !one {
            wrong.push("a new payload is for one letter only: name one id".into());
        }
        if let Some(bytes) = self.payload.as_ref().map(Bytes::len).filter(|it| *it > MAX_PAYLOAD) {
            let larger = PublishError::PayloadTooLarge { bytes, max: MAX_PAYLOAD };
            wrong.push(larger.to_string());
        }
        if self.per_second.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            wrong.push("the rate of a replay is a number above 0".into());
        }
        if let Some(canary) = &self.canary {
            wrong.extend(canary.wrong());
        }
        wrong
    }
}

impl DeadLetters {
    /// Puts the messages of open letters back into the outbox, the oldest first, as if they had
    /// been published now.
    ///
    /// - The transaction that inserts a row resolves its letter. So two replays at once put no
    ///   message back twice, and a replay that was killed can be repeated.
    /// - Letters that fail while it runs are left alone, unless the database's clock is set back
    ///   meanwhile: it tells which these are.
    /// - So are letters that failed later than it is now by the database's clock, which was perhaps
    ///   set back, unless the filter names their ids.
    ///
    /// # Errors
    /// When an option makes no sense, or a statement fails. The batches before it are done.
    ///
    /// # Cancel safety
    /// A dropped call leaves each batch of 500 letters either replayed or as it was.
    pub async fn replay(&self, filter: &Filter, how: &Replay) -> Result<ReplayReport> {
        self.replay_with(filter, how, |_| ()).await
    }

    /// Works as [`replay`](Self::replay), and tells `told` what became of each letter, batch by
    /// batch.
    ///
    /// # Errors
    /// As [`replay`](Self::replay).
    ///
    /// # Cancel safety
    /// As [`replay`](Self::replay).
    pub async fn replay_with(
        &self,
        filter: &Filter,
        how: &Replay,
        mut told: impl FnMut(&[Replayed]),
    ) -> Result<ReplayReport> {
        how.check(filter)?;
        let mut work = Work {
            letters: self,
            filter: self.open_letters(filter).await?,
            how,
            after: None,
            unseen: None,
            next: Instant::now(),
            seen: HashSet::new(),
            report: ReplayReport::default(),
            audit: Audit::of("replayed", filter),
        };
        if how.per_second.is_some() {
            work.unseen = Some(self.count(&work.filter).await?);
        }
        let most = how.limit.unwrap_or(u64::MAX);
        if let Some(canary) = how.canary.as_ref().filter(|_| most > 0) {
            let since = self.now().await?;
            let mut rows = Vec::new();
            let first = most.min(canary.letters);
            work.run(first, |batch| {
                rows.extend(batch.iter().filter_map(|one| one.row.ok()));
                told(batch);
            })
            .await?;
            let outcome = if rows.is_empty() {
                // No letter could be put back, so nothing is known of the others, if there are any.
                CanaryOutcome::of_none(self.count(&work.filter).await? == 0)
            } else {
                self.watch(canary, &rows, since).await?
            };
            work.report.canary = Some(outcome);
        }
        if !work.report.stopped() {
            let left = most.saturating_sub(work.report.replayed);
            work.run(left, &mut told).await?;
        }
        let all = how.limit.is_none_or(|limit| work.report.replayed < limit);
        if filter.ids.is_none() && all && !work.report.stopped() {
            // The letters that were passed over because somebody had them locked.
            let left = self.count(&work.filter).await?;
            work.report.locked = left.saturating_sub(work.report.kept);
            work.report.kept += work.report.locked;
        }
        let (mut report, reached) = (work.report, work.seen);
        if filter.ids.is_some() && !report.stopped() {
            let limited = how.limit.is_some_and(|limit| report.replayed >= limit);
            report.kept += self.tell_of_others(filter, &reached, limited, &mut told).await?;
        }
        work.audit.whole = !report.stopped() && report.kept == 0;
        Ok(report)
    }

    /// Tells why letters that were named were not reached. A limit is no reason to tell.
    async fn tell_of_others(
        &self,
        filter: &Filter,
        reached: &HashSet<i64>,
        limited: bool,
        told: &mut impl FnMut(&[Replayed]),
    ) -> Result<u64> {
        let named = filter.ids.iter().flatten().copied();
        let others: Vec<i64> = named.filter(|id| !reached.contains(id)).collect();
        let why = |(letter, standing)| {
            let kept = match standing {
                Err(missing) => missing,
                Ok(Status::Failed)
                    if filter.status.is_some_and(|wanted| wanted != Status::Failed) =>
                {
                    Kept::LeftOut
                }
                Ok(Status::Failed) if limited => return None,
                Ok(Status::Failed) => Kept::Locked,
                Ok(status) => Kept::Done(status),
            };
            Some(Replayed { letter, row: Err(kept) })
        };
        let standing = self.standing(filter, &others).await?;
        let kept: Vec<_> = standing.into_iter().filter_map(why).collect();
        if !kept.is_empty() {
            told(&kept);
        }
        Ok(kept.len() as u64)
    }
}

/// A replay under way.
struct Work<'a> {
    letters: &'a DeadLetters,
    filter: Filter,
    how: &'a Replay,
    /// The last letter that was looked at. The next batch begins behind it, so that a letter
    /// that stays is not looked at again.
    after: Option<LetterPosition>,
    /// At a rate, how many letters are still to be looked at: nobody waits behind the last one.
    unseen: Option<u64>,
    /// At a rate, when the next batch may go.
    next: Instant,
    /// The letters that were looked at, if letters were named.
    seen: HashSet<i64>,
    report: ReplayReport,
    audit: Audit<'a>,
}

impl Work<'_> {
    /// Replays up to this many letters.
    async fn run(&mut self, letters: u64, mut told: impl FnMut(&[Replayed])) -> Result<()> {
        let mut left = letters;
        while left > 0 {
            sleep_until(self.next).await;
            self.next = self.next.max(Instant::now());
            let most = self.batch().min(left);
            let limit = i64::try_from(most).unwrap_or(i64::MAX);
            let desk = &self.letters.operator;
            let (filter, after, how) = (&self.filter, self.after, self.how);
            let batch = on_desk!(desk, desk => desk.replay(filter, after, how, limit).await)?;
            let Some((last, _)) = batch.last() else { break };
            self.after = Some(*last);
            let batch = replayed(&batch);
            if self.filter.ids.is_some() {
                self.seen.extend(batch.iter().map(|one| one.letter));
            }
            let landed = batch.iter().filter(|one| one.row.is_ok()).count() as u64;
            self.report.replayed += landed;
            self.audit.letters += landed;
            self.report.kept += batch.len() as u64 - landed;
            left -= landed;
            self.unseen = self.unseen.map(|all| all.saturating_sub(batch.len() as u64));
            told(&batch);
            if let Some(rate) = self.how.per_second {
                if self.unseen == Some(0) {
                    break;
                }
                let share = Duration::try_from_secs_f64(landed as f64 / rate).unwrap_or(LONGEST);
                let share = share.min(LONGEST);
                self.next += share;
                let now = Instant::now();
                // Letters that a stall held up do not go out at once with the next ones.
                let late = now.saturating_duration_since(self.next);
                self.next = self.next.max(now) + late.min(share);
            }
        }
        Ok(())
    }

    /// The letters of one batch. At a rate, these are the letters of one second.
    fn batch(&self) -> u64 {
        // Bounded before it is cut to an integer.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let a_second = self.how.per_second.map(|rate| rate.clamp(1.0, f64::from(BATCH)) as u64);
        a_second.unwrap_or(u64::from(BATCH))
    }
}

/// The answer of a statement: the place of each letter, the oldest first, and the row that holds its
/// message now.
pub(crate) type Moved = Vec<(LetterPosition, Option<i64>)>;

pub(super) fn replayed(batch: &[(LetterPosition, Option<i64>)]) -> Vec<Replayed> {
    let mut seen = HashSet::new();
    let each = |&(LetterPosition { id, .. }, row): &(LetterPosition, Option<i64>)| {
        let kept = if seen.insert(id) { Kept::TimerIsLive } else { Kept::SameId };
        Replayed { letter: id, row: row.ok_or(kept) }
    };
    batch.iter().map(each).collect()
}
