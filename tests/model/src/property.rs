//! What is promised.

/// A promise that [`judge`](crate::judge()) knows, or (Z1) the drain of a
/// [`Scenario`](crate::Scenario).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Property {
    /// A row is there exactly if the producer's transaction committed.
    P1,
    /// No committed message vanishes.
    M1,
    /// A row deleted without a letter was handled under that very lease.
    D1,
    /// A letter is written exactly when its row is deleted, by the same statement.
    D2,
    /// No claim of a row whose lease holds.
    L1,
    /// A lease begins when it is taken or extended.
    L2,
    /// A fresh token for each claim.
    L3,
    /// Whoever writes to a leased row holds its lease, and nobody writes to another row.
    L4,
    /// At most one start of the handler for each claim.
    H1,
    /// Only a handler that was started spends an attempt or makes a letter, unless the
    /// row was delivered too often.
    H2,
    /// No start after the lease has ended.
    H3,
    /// Runs overlap only after the earlier one's lease has ended.
    H4,
    /// A dead letter failed itself, or brought its process down alone. Who is condemned for
    /// that runs no more, also if the letter cannot be written.
    H5,
    /// One delivery for each claim, less those given back unstarted or without their letter.
    C1,
    /// One attempt for each failed run, and not more than there may be.
    C2,
    /// No claim before the row is due.
    T1,
    /// What is put off is due after the whole delay.
    T2,
    /// One live row for each timer name; a publish that finds one changes nothing.
    T3,
    /// A cancelled timer never starts; one that is leased is not cancelled.
    T4,
    /// A replay resolves the letter and inserts its row, or does neither.
    R1,
    /// When nothing fails any more, the queue becomes empty.
    Z1,
}

impl Property {
    pub const ALL: [Self; 21] = [
        Self::P1,
        Self::M1,
        Self::D1,
        Self::D2,
        Self::L1,
        Self::L2,
        Self::L3,
        Self::L4,
        Self::H1,
        Self::H2,
        Self::H3,
        Self::H4,
        Self::H5,
        Self::C1,
        Self::C2,
        Self::T1,
        Self::T2,
        Self::T3,
        Self::T4,
        Self::R1,
        Self::Z1,
    ];

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A set of properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Broken(u32);

impl Broken {
    /// Adds the property unless it held.
    pub fn unless(&mut self, property: Property, held: bool) {
        if !held {
            self.0 |= property.bit();
        }
    }

    #[must_use]
    pub fn has(self, property: Property) -> bool {
        self.0 & property.bit() != 0
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Property> {
        Property::ALL.into_iter().filter(move |property| self.has(*property))
    }
}

impl std::ops::BitOrAssign for Broken {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
