//! When to claim from the start.
//!
//! Dead rows lie before the living ones, and there are many of them if something keeps the database
//! from clearing them away. So a claim begins where the last one ended. It does not see rows that
//! came back or were committed late. A claim from the start, called a sweep here, sees them.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::store::Position;

/// Sweeps take one in so many parts of the time.
const SHARE: u32 = 20;
/// While there is plenty to do, sweeps are not more frequent than this.
const EVERY: Duration = Duration::from_millis(100);
/// Nor are they more frequent than this if many rows were taken since the last one: a sweep would
/// walk over each of them, and later a vacuum has cleared most of them away.
const OVER_MANY: Duration = Duration::from_secs(5);
const MANY: usize = 1000;
/// A sweep that took no longer met no dead rows to speak of.
const CHEAP: Duration = Duration::from_millis(5);
/// The least that a sweep takes for each row that was taken since the last one. It walks over what
/// is left of the row, and PostgreSQL clears the pages on the way.
const WALK: Duration = Duration::from_micros(1);

pub(super) struct Sweep {
    /// A subscriber that has nothing else to do waits no longer than this because of many rows.
    longest: Duration,
    /// Nor does it wait longer than this for any reason, unless a sweep takes more than half of
    /// that.
    max_poll: Duration,
    /// When the last sweep was sent.
    begun: Instant,
    /// How long it took.
    took: Duration,
    /// Rows taken since the last sweep was sent, its own included.
    taken: usize,
    /// Where other claims began when it was sent.
    floor: Option<Position>,
    /// It got as many rows as it asked for, all of them before that place: there are more.
    more: bool,
}

impl Sweep {
    pub(super) fn new(now: Instant, max_poll: Duration) -> Self {
        let longest = OVER_MANY.min(max_poll);
        let took = Duration::ZERO;
        Self { longest, max_poll, begun: now, took, taken: 0, floor: None, more: false }
    }

    pub(super) fn begins(&mut self, now: Instant, floor: Option<Position>) {
        (self.begun, self.taken, self.floor) = (now, 0, floor);
    }

    /// Whether other claims began at a time that is still to come: then the database's clock has
    /// gone back. An answer that comes after that of a later claim is not taken for such a clock.
    pub(super) fn began_ahead_of(&self, now: SystemTime) -> bool {
        self.floor.is_some_and(|floor| floor.due > now)
    }

    /// Notes rows that were taken, by the sweep or by a claim after it.
    pub(super) fn taken(&mut self, rows: usize) {
        self.taken += rows;
    }

    /// The sweep was answered. `last` is its last row, if it got as many rows as it asked for. A
    /// sweep that took long for another reason does not count in full.
    pub(super) fn ended(&mut self, took: Duration, last: Option<Position>) {
        self.took = took.min(2 * self.took.max(CHEAP / 4));
        self.more = last.is_some_and(|last| Some(last) < self.floor);
    }

    /// The sweep ended without an answer.
    pub(super) fn failed(&mut self, took: Duration) {
        if took > self.took {
            self.ended(took, None);
        }
    }

    /// When to sweep again; `plenty` if the last claim got as many rows as it asked for.
    pub(super) fn next(&self, plenty: bool) -> Instant {
        let taken = if self.more { 0 } else { self.taken };
        let longest = self.max_poll.max(2 * self.took);
        if plenty {
            let every = if taken > MANY { OVER_MANY } else { EVERY };
            return self.begun + every.max((self.took * SHARE).min(longest));
        }
        let rest = |took: Duration| if took > CHEAP { took * SHARE } else { Duration::ZERO };
        let walk = WALK * u32::try_from(taken).unwrap_or(u32::MAX);
        let wait = rest(self.took).max(rest(walk).min(self.longest));
        self.begun + wait.min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn one_in_twenty_of_the_time_goes_to_claims_from_the_start() {
        let now = Instant::now();
        let mut sweep = Sweep::new(now, HOUR);
        assert_eq!(sweep.next(false), now, "it may cost nothing");
        assert_eq!(sweep.next(true), now + EVERY, "at most ten a second");
        // It met dead rows. But a single sweep that takes long does not count in full.
        sweep.ended(3600 * 1000 * MS, None);
        assert_eq!(sweep.took, CHEAP / 2);
        for _ in 0..2 {
            sweep.ended(10 * MS, None);
        }
        assert_eq!(sweep.next(false), now + 200 * MS);
        assert_eq!(sweep.next(true), now + 200 * MS);
    }

    /// As over the dead rows of a snapshot that is held for hours.
    #[test]
    fn however_long_it_takes_it_waits_no_longer_than_a_poll() {
        let now = Instant::now();
        let mut sweep = Sweep::new(now, 20_000 * MS);
        for _ in 0..20 {
            sweep.ended(3_000 * MS, None);
        }
        assert_eq!(sweep.next(true), now + 20_000 * MS);
        assert_eq!(sweep.next(false), now + 20_000 * MS);
    }

    #[test]
    fn over_many_rows_it_is_seldom_while_there_is_plenty() {
        let now = Instant::now();
        let mut sweep = Sweep::new(now, HOUR);
        sweep.taken(MANY);
        assert_eq!(sweep.next(true), now + EVERY);
        sweep.taken(1);
        assert_eq!(sweep.next(true), now + OVER_MANY);
        assert_eq!(sweep.next(false), now, "whoever has nothing else to do looks");
        sweep.begins(now + MS, None);
        assert_eq!(sweep.next(true), now + MS + EVERY);
    }

    #[test]
    fn who_took_very_many_does_not_walk_over_them_as_soon_as_there_are_no_more() {
        let now = Instant::now();
        let mut sweep = Sweep::new(now, HOUR);
        sweep.taken(5_000);
        assert_eq!(sweep.next(false), now);
        sweep.taken(5_000);
        assert_eq!(sweep.next(false), now + 200 * MS);
        sweep.taken(usize::MAX / 2);
        assert_eq!(sweep.next(false), now + OVER_MANY);
        sweep.begins(now + MS, None);
        assert_eq!(sweep.next(false), now + MS);
        let mut sweep = Sweep::new(now, 300 * MS);
        sweep.taken(usize::MAX / 2);
        assert_eq!(sweep.next(false), now + 300 * MS, "no longer than between two polls");
        let mut sweep = Sweep { took: 20 * MS, ..Sweep::new(now, 300 * MS) };
        assert_eq!(sweep.next(false), now + 300 * MS, "though it took so long");
        sweep.took = 200 * MS;
        assert_eq!(sweep.next(false), now + 400 * MS, "half of the time goes to other things");
    }

    #[test]
    fn who_got_many_that_came_back_asks_for_more_soon() {
        let now = Instant::now();
        let at = |id| Position { due: std::time::SystemTime::UNIX_EPOCH, id };
        let mut sweep = Sweep::new(now, HOUR);
        let mut ended = |floor, last| {
            sweep.begins(now, floor);
            sweep.taken(MANY + 1);
            sweep.ended(MS, last);
            sweep.next(true)
        };
        assert_eq!(ended(Some(at(7)), Some(at(6))), now + EVERY);
        assert_eq!(ended(Some(at(7)), Some(at(8))), now + OVER_MANY, "it reached the others");
        assert_eq!(ended(Some(at(7)), None), now + OVER_MANY, "it got less than it asked for");
        assert_eq!(ended(None, Some(at(6))), now + OVER_MANY, "it was the first");
    }
}
