//! What times and counts are made of.

use std::ops::{Add, Sub};

/// The checker's: the fewer values there are, the fewer states.
pub type Tick = u8;

/// The checker takes ticks; along the record of a run times are microseconds.
pub trait Number:
    Copy + Ord + Default + From<bool> + Add<Output = Self> + Sub<Output = Self>
{
    /// What is left, and never less than nothing.
    #[must_use]
    fn less(self, by: Self) -> Self;
}

impl Number for Tick {
    fn less(self, by: Self) -> Self {
        self.saturating_sub(by)
    }
}

impl Number for i64 {
    fn less(self, by: Self) -> Self {
        self.saturating_sub(by).max(0)
    }
}
