//! What the statements of operators answer. The answers of both databases have the same columns in
//! the same places, and only their times differ, so one set of functions reads both.

use std::time::{Duration, SystemTime};

use crate::dlq::{Groups, Letter, LetterPosition, Opened, Problem, Status, StatusError, Unmarked};
use crate::ops::doctor::StoredMessage;
use crate::ops::{self, Counted, Pause, QueueInfo, QueueSample};

/// The columns of a row, whichever driver it comes from.
pub(crate) trait Columns {
    fn is_null(&self, at: usize) -> sqlx::Result<bool>;
    fn flag(&self, at: usize) -> sqlx::Result<bool>;
    fn number(&self, at: usize) -> sqlx::Result<i64>;
    fn text(&self, at: usize) -> sqlx::Result<String>;
    fn bytes(&self, at: usize) -> sqlx::Result<Vec<u8>>;
    fn time(&self, at: usize) -> sqlx::Result<SystemTime>;

    fn count(&self, at: usize) -> sqlx::Result<u64> {
        Ok(self.number(at)?.max(0).unsigned_abs())
    }

    /// Reads a column that may be NULL.
    fn maybe<T>(
        &self,
        at: usize,
        read: impl Fn(&Self, usize) -> sqlx::Result<T>,
    ) -> sqlx::Result<Option<T>> {
        if self.is_null(at)? { Ok(None) } else { read(self, at).map(Some) }
    }
}

/// Implements [`Columns`] for the rows of a driver. `$time` makes a time of what the driver has for
/// one; `$any_text` reads a text, whatever the column is said to hold.
macro_rules! columns {
    ($row:ty, $time:expr, $any_text:expr) => {
        impl $crate::store::answers::Columns for $row {
            fn is_null(&self, at: usize) -> sqlx::Result<bool> {
                Ok(sqlx::ValueRef::is_null(&self.try_get_raw(at)?))
            }

            fn flag(&self, at: usize) -> sqlx::Result<bool> {
                self.try_get(at)
            }

            fn number(&self, at: usize) -> sqlx::Result<i64> {
                self.try_get(at)
            }

            fn text(&self, at: usize) -> sqlx::Result<String> {
                $any_text(self, at)
            }

            fn bytes(&self, at: usize) -> sqlx::Result<Vec<u8>> {
                self.try_get(at)
            }

            fn time(&self, at: usize) -> sqlx::Result<std::time::SystemTime> {
                self.try_get(at).map($time)
            }
        }
    };
}
pub(crate) use columns;

/// The place of a letter, from a row that begins with its id and the time of its failure.
pub(crate) fn place(row: &impl Columns) -> sqlx::Result<LetterPosition> {
    Ok(LetterPosition { id: row.number(0)?, failed_at: row.time(1)? })
}

fn status(row: &impl Columns, at: usize) -> sqlx::Result<Status> {
    row.text(at)?.parse().map_err(|error: StatusError| sqlx::Error::Decode(error.into()))
}

pub(crate) fn id_and_status(row: &impl Columns) -> sqlx::Result<(i64, Status)> {
    Ok((row.number(0)?, status(row, 1)?))
}

/// A letter, from the columns that a page of letters and a single letter have in common.
pub(crate) fn letter<R: Columns>(row: &R) -> sqlx::Result<Letter> {
    Ok(Letter {
        id: row.number(0)?,
        original_id: row.number(1)?,
        queue: row.text(2)?,
        payload_bytes: row.count(3)?,
        deliveries_count: row.count(4)?,
        created_at: row.time(5)?,
        failed_at: row.time(6)?,
        failure_reason: row.text(7)?,
        last_exception: row.maybe(8, R::text)?,
        timer_id: row.maybe(9, R::text)?,
        status: status(row, 10)?,
        resolved_at: row.maybe(11, R::time)?,
        note: row.maybe(12, R::text)?,
        error_kind: row.maybe(13, R::text)?,
        fingerprint: row.maybe(14, R::text)?,
        replayed_id: row.maybe(15, R::number)?,
        replays: row.maybe(16, R::text)?.and_then(|text| text.parse().ok()).unwrap_or(0),
    })
}

pub(crate) fn opened<R: Columns>(row: &R) -> sqlx::Result<Opened> {
    let headers = row.maybe(18, R::text)?.map(Into::into);
    Ok(Opened { letter: letter(row)?, payload: row.bytes(17)?.into(), headers })
}

/// The totals of letters and problems, and one problem; `None` in a row that only has the totals.
pub(crate) fn totals_and_problem<R: Columns>(row: &R) -> sqlx::Result<(u64, u64, Option<Problem>)> {
    let problem = row.maybe(9, |row, newest| {
        Ok(Problem {
            fingerprint: row.text(2)?,
            letters: row.count(3)?,
            first_seen: row.time(4)?,
            last_seen: row.time(5)?,
            queue: row.text(6)?,
            error_kind: row.maybe(7, R::text)?,
            failure_reason: row.text(8)?,
            newest: row.number(newest)?,
            sample: row.maybe(10, R::text)?,
        })
    })?;
    Ok((row.count(0)?, row.count(1)?, problem))
}

/// Everything that these rows say.
pub(crate) fn groups(rows: Vec<(u64, u64, Option<Problem>)>) -> Groups {
    let (letters, count) = rows.last().map_or((0, 0), |(letters, count, _)| (*letters, *count));
    let problems = rows.into_iter().filter_map(|(.., problem)| problem).collect();
    Groups { letters, count, problems }
}

pub(crate) fn unmarked<R: Columns>(row: &R) -> sqlx::Result<Unmarked> {
    Ok(Unmarked {
        place: place(row)?,
        queue: row.text(2)?,
        error_kind: row.maybe(3, R::text)?,
        failure_reason: row.text(4)?,
        message: row.maybe(5, R::text)?,
    })
}

pub(crate) fn letter_in_short<R: Columns>(row: &R) -> sqlx::Result<ops::Letter> {
    Ok(ops::Letter {
        letter_id: row.number(0)?,
        original_id: row.number(1)?,
        queue: row.text(2)?,
        failed_at: row.time(3)?,
        failure_reason: row.text(4)?,
        error_kind: row.maybe(5, R::text)?,
        last_exception: row.maybe(6, R::text)?,
        status: row.text(7)?,
        resolved_at: row.maybe(8, R::time)?,
        replayed_id: row.maybe(9, R::number)?,
    })
}

pub(crate) fn queue<R: Columns>(row: &R) -> sqlx::Result<QueueInfo> {
    Ok(QueueInfo {
        queue: row.text(0)?,
        has_rows: row.flag(1)?,
        has_dead_letters: row.flag(2)?,
        paused_at: row.maybe(3, R::time)?,
        note: row.maybe(4, R::text)?,
    })
}

pub(crate) fn pause<R: Columns>(row: &R, was_paused: bool) -> sqlx::Result<Pause> {
    Ok(Pause {
        queue: row.text(0)?,
        paused_at: row.time(1)?,
        note: row.maybe(2, R::text)?,
        was_paused,
    })
}

pub(crate) fn counted<R: Columns>(row: &R) -> sqlx::Result<Counted> {
    let sample = QueueSample {
        queue: row.text(0)?,
        waiting: row.count(1)?,
        due: row.count(2)?,
        leased: row.count(3)?,
        retrying: row.count(4)?,
        oldest: row.maybe(5, R::count)?.map(Duration::from_micros),
        bounded: false,
        dead_letters: row.count(6)?,
        dead_letters_bounded: false,
        paused_at: None,
    };
    Ok(Counted { sample, rows: row.count(7)? })
}

/// What a trial needs to know of a row.
pub(crate) fn kept<R: Columns>(row: &R) -> sqlx::Result<StoredMessage> {
    Ok(StoredMessage {
        id: row.number(0)?,
        queue: row.text(1)?,
        payload: row.maybe(2, R::bytes)?.unwrap_or_default().into(),
        headers: row.maybe(3, R::text)?.map(Into::into),
    })
}
