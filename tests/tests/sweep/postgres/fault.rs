//! What is done to one message of a flow.

use std::fmt;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The connection is cut before the client's message goes on to the server.
    Before,
    /// After it went on: what the server makes of it, nobody hears.
    After,
    /// Before the server's message goes on to the client.
    Reply,
    /// The client's message goes on when the lease is over.
    Freeze,
    /// So does the server's.
    Late,
}

/// Of the first message on, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    pub at: usize,
}

/// Messages of a flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: usize,
    pub answered: usize,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Before, Self::After, Self::Reply, Self::Freeze, Self::Late];

    pub fn is_of_client(self) -> bool {
        matches!(self, Self::Before | Self::After | Self::Freeze)
    }

    pub fn cuts(self) -> bool {
        matches!(self, Self::Before | Self::After | Self::Reply)
    }
}

impl Fault {
    /// Every kind at every message. An answer that comes late is another thing than a
    /// statement that does so only where there is a lease.
    pub fn all(counts: Counts, leased: bool) -> Vec<Self> {
        let of = |kind: Kind| if kind.is_of_client() { counts.sent } else { counts.answered };
        let at_each = |kind| (1..=of(kind)).map(move |at| Self { kind, at });
        let kinds = Kind::ALL.into_iter().filter(|kind| leased || *kind != Kind::Late);
        kinds.flat_map(at_each).collect()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.at)
    }
}

/// How long a lease lasts where the connection is cut: nothing may wait for its end.
pub const LONG_LEASE: Duration = Duration::from_secs(60);
/// And where it has to run out.
pub const SHORT_LEASE: Duration = Duration::from_millis(900);
/// Longer than that.
pub const FROZEN: Duration = Duration::from_millis(1800);
