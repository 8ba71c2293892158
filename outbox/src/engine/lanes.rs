//! How many claims a process keeps under way: two, as long as nobody else claims from
//! the same queue.
//!
//! A claim steps over the rows that others hold or take at the same moment. So each further claim
//! that runs makes all of them more expensive, and with many processes that costs more than it
//! hides. Nobody counts the processes: the claims report whether they met others.

use std::time::Duration;

use tokio::time::Instant;

/// With one, nothing would be claimed while its rows are read.
const ALONE: usize = 2;
/// After a claim met others, only one claim at a time is under way for this long. A second claim
/// now and then is the price for noticing that they have gone.
const CROWDED_FOR: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Lanes {
    crowded_until: Option<Instant>,
}

impl Lanes {
    /// Notes a claim that was answered.
    pub(super) fn answered(&mut self, crowded: bool, now: Instant) {
        if crowded {
            self.crowded_until = Some(now + CROWDED_FOR);
        }
    }

    /// Whether one more may be sent.
    pub(super) fn free(&self, under_way: usize, now: Instant) -> bool {
        under_way == 0 || under_way < ALONE && self.opens_at(now).is_none()
    }

    /// When one more may be sent, even if the one under way has no answer by then: other
    /// subscribers do not wait for a claim that hangs.
    pub(super) fn opens_at(&self, now: Instant) -> Option<Instant> {
        self.crowded_until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_claims_alone_has_two_claims_under_way() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        lanes.answered(false, now);
        assert!(lanes.free(0, now) && lanes.free(1, now) && !lanes.free(2, now));
        assert_eq!(lanes.opens_at(now), None);
    }

    #[test]
    fn whoever_meets_others_has_one_claim_under_way_for_a_second() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        lanes.answered(true, now);
        let last = now + CROWDED_FOR - Duration::from_millis(1);
        for at in [now, last] {
            assert!(lanes.free(0, at) && !lanes.free(1, at));
            assert_eq!(lanes.opens_at(at), Some(now + CROWDED_FOR));
        }
        assert!(lanes.free(1, now + CROWDED_FOR));
    }

    #[test]
    fn a_claim_that_meets_nobody_does_not_end_that_second() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        lanes.answered(true, now);
        lanes.answered(false, now);
        assert!(!lanes.free(1, now));
        let later = now + CROWDED_FOR / 2;
        lanes.answered(true, later);
        assert_eq!(lanes.opens_at(now + CROWDED_FOR), Some(later + CROWDED_FOR));
    }
}
