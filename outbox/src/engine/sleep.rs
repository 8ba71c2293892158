//! Whether a subscriber sleeps until it is woken, or has so much to do that it looks by itself.
//! While it is awake, publishers need not wake it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How long it has to be busy before it stays awake.
const BUSY_FOR: Duration = Duration::from_millis(100);
/// Rows a second for which it stays awake: as many wakes would cost more than a look every
/// [`Awake::LOOK`].
const MANY: f64 = 1000.0;
/// After this long without enough to do it falls asleep.
const TIRED_AFTER: Duration = Duration::from_millis(500);

/// What the watcher of wakes is told of a subscriber.
pub(crate) struct Sleep {
    awake: AtomicBool,
    /// Makes the watcher tell the publishers.
    changed: Arc<Notify>,
}

impl Sleep {
    pub(super) fn new(changed: &Arc<Notify>) -> Self {
        Self { awake: AtomicBool::new(false), changed: Arc::clone(changed) }
    }

    pub(super) fn is_awake(&self) -> bool {
        self.awake.load(Ordering::Acquire)
    }

    pub(super) fn set_awake(&self, awake: bool) {
        if self.awake.swap(awake, Ordering::AcqRel) != awake {
            self.changed.notify_one();
        }
    }
}

/// Decides, by what claims find, whether to stay awake.
pub(super) struct Awake {
    since: Instant,
    rows: usize,
    /// Every claim since then, and the one before, got all it asked for.
    plenty: bool,
    until: Option<Instant>,
    wait: Duration,
}

impl Awake {
    /// The time between two looks while rows come. It grows up to `LOOK_LAST` while none come.
    const LOOK: Duration = Duration::from_millis(2);
    const LOOK_LAST: Duration = Duration::from_millis(50);

    pub(super) fn new() -> Self {
        let (since, wait) = (Instant::now(), Self::LOOK);
        Self { since, rows: 0, plenty: false, until: None, wait }
    }

    /// After a claim: when to look again, if it stays awake.
    pub(super) fn claimed(&mut self, rows: usize, plenty: bool, now: Instant) -> Option<Duration> {
        self.rows += rows;
        self.plenty &= plenty;
        let took = now.duration_since(self.since);
        if took >= BUSY_FOR {
            let many = self.rows as f64 >= MANY * took.as_secs_f64();
            if many || self.plenty {
                self.until = Some(now + TIRED_AFTER);
            }
            (self.since, self.rows, self.plenty) = (now, 0, plenty);
        }
        self.wait = if rows > 0 { Self::LOOK } else { Self::LOOK_LAST.min(self.wait * 2) };
        self.until.is_some_and(|until| now < until).then_some(self.wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A claim every `every` milliseconds for a second; returns whether it was awake after each.
    fn second(awake: &mut Awake, every: u32, rows: usize, plenty: bool) -> Vec<bool> {
        let begin = awake.since;
        (1..=1000 / every)
            .map(|n| awake.claimed(rows, plenty, begin + n * every * MS).is_some())
            .collect()
    }

    #[test]
    fn who_keeps_up_with_many_rows_stays_awake() {
        let after = second(&mut Awake::new(), 2, 3, false);
        assert!(!after[10] && after[60..].iter().all(|awake| *awake));
    }

    #[test]
    fn who_gets_all_it_asks_for_time_after_time_stays_awake() {
        let after = second(&mut Awake::new(), 50, 1, true);
        assert!(!after[0] && after[10..].iter().all(|awake| *awake));
    }

    #[test]
    fn single_messages_and_a_burst_after_a_rest_wake_nobody_up() {
        assert!(!second(&mut Awake::new(), 50, 1, false).contains(&true));
        let mut awake = Awake::new();
        let burst = awake.since + Duration::from_secs(10);
        assert_eq!(awake.claimed(1000, true, burst), None);
        assert_eq!(awake.claimed(0, false, burst + MS), None);
    }

    #[test]
    fn who_finds_nothing_looks_ever_later_and_then_sleeps() {
        let mut awake = Awake::new();
        second(&mut awake, 2, 3, false);
        let end = awake.until.unwrap();
        assert_eq!(awake.claimed(3, false, end - 400 * MS), Some(2 * MS));
        assert_eq!(awake.claimed(0, false, end - 399 * MS), Some(4 * MS));
        for _ in 0..9 {
            awake.claimed(0, false, end - 398 * MS);
        }
        assert_eq!(awake.claimed(0, false, end - MS), Some(50 * MS));
        assert_eq!(awake.claimed(0, false, end), None);
    }
}
