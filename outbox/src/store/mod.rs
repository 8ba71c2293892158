//! Where rows live: one trait, [`Store`], and a folder for each database. `memory` is for tests,
//! and is the executable specification of the other two.
//!
//! Publishing inserts a row. A claim leases it: it writes its token into the row, with the time,
//! and counts a delivery. Every later write names the row by its id and that token. It deletes the
//! row, moves it to the dead-letter table, or clears the lease and sets a new due time.
//!
//! Files that do the same work have the same name in each folder:
//!
//! | what | where |
//! |---|---|
//! | the engine's work | `claim`, `settle`, `runs`, `listen`, `depth` |
//! | publishing; transactions lent to handlers | `publish`, `lend` |
//! | what operators ask and do | `desk`, `counts`, `pauses`, `letters`, `why`, `doctor` |
//! | making and checking the tables | `schema`, `validate` |
//!
//! `Store` is not public API: it changes with the engine. The conformance suite sees it through the
//! hidden `testing::store`. Nothing in here knows about handlers.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod answers;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod counted;
mod death;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod desk;
pub(crate) mod making;
#[cfg(feature = "testing")]
pub mod memory;
pub(crate) mod names;
mod pausable;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
pub(crate) mod template;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use uuid::Uuid;

pub use death::Death;
use pausable::{Pausable, without_pauses};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use template::sql;
pub(crate) use template::statements;

use crate::error::StoreError;
use crate::message::Row;
use crate::publish::Prepared;
use crate::schema::SchemaMismatch;

pub type Result<T> = std::result::Result<T, StoreError>;

/// The version of tokens under which a row runs alone; other tokens have version 4.
const ALONE_VERSION: usize = 8;

/// A fresh lease token.
pub fn new_token() -> Uuid {
    Uuid::new_v4()
}

/// A fresh token that says: this row is all that runs. If such a lease is found expired, the row
/// itself is taken to have brought its process down.
pub fn new_alone_token() -> Uuid {
    Uuid::new_v8(*Uuid::new_v4().as_bytes())
}

pub(crate) fn is_alone(token: Uuid) -> bool {
    token.get_version_num() == ALONE_VERSION
}

/// Which rows to take, under which token.
#[derive(Debug, Clone)]
pub struct Claim {
    pub queues: Arc<[String]>,
    pub limit: usize,
    pub lease_ttl: Duration,
    /// Made before the claim is sent, so that a claim whose answer was lost can be released by it.
    pub token: Uuid,
    /// The claim begins behind this place, and leaves the rows before it alone.
    pub after: Option<Position>,
    /// If the claim is lost and its rows are given back, none of them counts more deliveries than
    /// this allows. Such rows no longer show that their leases ran out, and would be condemned
    /// without a run.
    pub max_deliveries: Option<u64>,
    /// What it will find, as far as anybody knows. That only affects the time it takes.
    pub expects: Expects,
}

/// How many due rows there are behind the place where a claim begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expects {
    /// Fewer than [`FEW`].
    Few,
    /// About as many, or more.
    Many,
    /// As many as it asks for: the last claim got that.
    Plenty,
}

impl Expects {
    /// After a claim of `limit` rows at most that got this many.
    pub(crate) fn after(limit: usize, got: usize) -> Self {
        match got {
            all if all == limit => Self::Plenty,
            FEW.. => Self::Many,
            _ => Self::Few,
        }
    }
}

/// A claim that expects fewer looks this far before it takes rows. Its statement contains the
/// number too.
pub const FEW: usize = 100;

impl Claim {
    /// The limit, in the type that databases count in.
    #[cfg(feature = "postgres")]
    fn most_rows(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX)
    }

    /// How many deliveries an abandoned row counts at most, with the one that is taken back.
    fn most_deliveries(&self) -> u64 {
        self.max_deliveries.unwrap_or(u64::MAX)
    }
}

/// A place in the order of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub due: SystemTime,
    pub id: i64,
}

impl Position {
    pub fn of(row: &Row) -> Self {
        Self { due: row.next_attempt_at, id: row.id }
    }
}

/// A claim takes no more rows once their payloads and headers come to this many bytes. The
/// statements contain the number too. Results wait, and are written, by the same measure.
pub(crate) const CLAIM_BYTES: usize = 32 << 20;

/// What a claim got.
#[derive(Debug, Default)]
pub struct Taken {
    /// In order of (due time, id).
    pub rows: Vec<Claimed>,
    /// When it had the rows, if the answer came later: other claims came behind it.
    pub at: Option<Instant>,
    /// Time until the next row of its queues becomes due or the next lease runs out. The claim
    /// looks for it only when it got fewer rows than it asked for. Rows that are free and due do
    /// not count: they were passed by, because somebody has them locked. Zero if rows were left
    /// because those before them are large.
    pub next: Option<Duration>,
    /// Others were claiming from the same queue. Reported only where it matters, and to a claim
    /// that expected plenty.
    pub crowded: bool,
}

/// A row just claimed. `row.acquired_token` is the claim's.
#[derive(Debug)]
pub struct Claimed {
    /// Boxed, because it is large and is moved from hand to hand until its handler has it.
    pub row: Box<Row>,
    pub before: Before,
}

#[cfg(test)]
impl Claimed {
    /// A row of queue `q`, due and claimed at these times, and settled before.
    pub(crate) fn of_test(id: i64, due: SystemTime, at: SystemTime, payload: bytes::Bytes) -> Self {
        let fresh = Row::fresh(id, "q".into(), payload, due);
        let row = Row { deliveries_count: 1, acquired_at: Some(at), ..fresh };
        Self { row: Box::new(row), before: Before::Settled }
    }
}

/// How the row's previous delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// There was none, or it was settled.
    Settled,
    /// Its lease ran out, and other rows may have been to blame.
    Expired,
    /// Its lease ran out while it ran alone.
    ExpiredAlone,
}

impl Before {
    fn of(previous: Option<Uuid>) -> Self {
        match previous {
            None => Self::Settled,
            Some(token) if is_alone(token) => Self::ExpiredAlone,
            Some(_) => Self::Expired,
        }
    }
}

/// The right to settle a row: every write after a claim carries both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    pub id: i64,
    pub token: Uuid,
}

/// A handled row with the messages that are published in its place.
#[derive(Debug, Clone, Copy)]
pub struct Handled<'a> {
    pub lease: Lease,
    pub messages: &'a [Prepared],
}

/// Due again after `delay`, one attempt spent.
#[derive(Debug, Clone)]
pub struct Retry {
    pub lease: Lease,
    pub delay: Duration,
}

/// Gives a lease up.
#[derive(Debug, Clone)]
pub struct Release {
    pub lease: Lease,
    /// `None` leaves the due time as it is.
    pub due_in: Option<Duration>,
    /// Deliveries taken back from `deliveries_count`.
    pub uncount: u64,
    /// When the row was claimed, if its handler has started. The row is not due again within a
    /// millisecond of that, even if the database's clock was set back. With the count taken back,
    /// only the time tells this claim from the next.
    pub claimed_at: Option<SystemTime>,
}

/// A lease to prolong, or to continue under another token.
#[derive(Debug, Clone, Copy)]
pub struct Extend {
    pub lease: Lease,
    pub token: Uuid,
}

impl Release {
    /// The earliest time at which it may be due.
    fn not_before(&self) -> Option<SystemTime> {
        self.claimed_at.map(|at| at + Duration::from_millis(1))
    }
}

/// For every lease handed in, in that order: whether the write matched a row. If not, the lease is
/// lost.
pub type Landed = Vec<bool>;

/// The queues in which messages were written, or named timers put off, and how many.
pub type Inserted = Vec<(String, usize)>;

/// What a sampler finds in a queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Depth {
    pub queue: String,
    /// All rows, leased ones too.
    pub backlog: usize,
    /// Due and not leased.
    pub due: usize,
    pub leased: usize,
    /// How long ago the first of the rows that are due and not leased became due.
    pub oldest_age: Duration,
    /// Dead letters with the status `failed`; `None` if none are kept, or they cannot be counted.
    pub dead_letters: Option<usize>,
    /// How full the server's queue of notifications is, from 0 to 1, whatever queue this is;
    /// `None` where there is no such thing.
    pub notify_usage: Option<f64>,
}

/// The connections of the engine. PostgreSQL's do not include the one that listens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Connections {
    pub open: usize,
    pub idle: usize,
    pub most: usize,
}

/// The rows of one table, for the engine.
///
/// Every write checks id and token, and takes a due time or a lease from the database's clock. A
/// failed call has written nothing, unless both `StoreError::transient` and
/// `StoreError::perhaps_done` are true: then it may have written everything. Only a failed
/// [`abandon`](Store::abandon) may have released the rows of some of the claim's queues.
pub trait Store: sealed::Sealed + Clone + Send + Sync + 'static {
    /// Leases due rows in order of (due time, id) and counts a delivery of each, for one claim
    /// after the other. A claim of no rows only looks ahead.
    fn claim(&self, claims: &[Claim]) -> impl Future<Output = Result<Vec<Taken>>> + Send;
    /// Deletes handled rows.
    fn ack(&self, leases: &[Lease]) -> impl Future<Output = Result<Landed>> + Send;
    /// Deletes handled rows and publishes what their handlers returned, each row and its messages
    /// together or neither. A timer name stands only once in a call.
    fn ack_publishing(
        &self,
        acks: &[Handled<'_>],
    ) -> impl Future<Output = Result<(Landed, Inserted)>> + Send;
    /// Puts failed rows off.
    fn retry(&self, retries: &[Retry]) -> impl Future<Output = Result<Landed>> + Send;
    /// Moves terminal rows to the dead-letter table, or deletes them without one.
    fn bury(&self, deaths: &[Death<'_>]) -> impl Future<Output = Result<Landed>> + Send;
    /// Gives leases back.
    fn release(&self, releases: &[Release]) -> impl Future<Output = Result<Landed>> + Send;
    /// Starts leases anew, except those whose rows somebody else has locked.
    fn extend(&self, leases: &[Extend]) -> impl Future<Output = Result<Landed>> + Send;
    /// Which of these leases, which were not extended, still exist: their rows are locked, and
    /// until they are free nobody can claim them.
    fn held(&self, leases: &[Lease]) -> impl Future<Output = Result<Landed>> + Send {
        std::future::ready(Ok(vec![false; leases.len()]))
    }
    /// Releases whatever was taken by a claim whose answer was lost.
    fn abandon(&self, claim: &Claim) -> impl Future<Output = Result<u64>> + Send;
    /// Waits for wakes.
    fn listen(&self) -> impl Future<Output = Result<Self::Wakes>> + Send;
    /// True when publishers wake only subscribers that said so by [`Wakes::sleep_on`].
    fn wakes_only_sleepers(&self) -> bool {
        false
    }
    /// True when dead letters are kept.
    fn keeps_dead_letters(&self) -> bool;
    /// The same tables. What this settles is kept once it answers, even where other settles do not
    /// wait for the disk.
    #[must_use]
    fn durable(&self) -> Self {
        self.clone()
    }
    /// What is wrong with the tables.
    fn validate(&self, autovacuum: bool) -> impl Future<Output = Result<SchemaMismatch>> + Send;
    /// Asks the database for a sign of life.
    fn ping(&self) -> impl Future<Output = Result<()>> + Send;
    /// What is in these queues. Each is looked at as far as its first `most` rows in the order of
    /// due times, and its first `most` dead letters.
    fn depths(
        &self,
        queues: &[String],
        most: usize,
    ) -> impl Future<Output = Result<Vec<Depth>>> + Send;
    /// How many connections there are.
    fn connections(&self) -> Connections;
    /// Closes the engine's own connections.
    fn close(&self) -> impl Future<Output = ()> + Send;

    /// A running subscription to wakes.
    type Wakes: Wakes;
}

/// Stores are written here and nowhere else.
mod sealed {
    pub trait Sealed {}
    #[cfg(feature = "testing")]
    impl Sealed for super::memory::MemoryStore {}
    #[cfg(all(test, feature = "testing"))]
    impl Sealed for crate::engine::tests::unanswered::Unanswered {}
    #[cfg(feature = "testing")]
    impl Sealed for crate::testing::simulate::FaultyStore {}
    #[cfg(feature = "postgres")]
    impl Sealed for super::postgres::PgStore {}
    #[cfg(feature = "sqlite")]
    impl Sealed for super::sqlite::SqliteStore {}
}

/// A subscription to wakes. Dropping it ends it.
pub trait Wakes: Send + 'static {
    /// The next wake. An error ends the subscription: the caller makes another.
    ///
    /// Cancel safe: a dropped call loses at most a hint.
    fn next(&mut self) -> impl Future<Output = Result<Wake>> + Send;

    /// From now on messages of these queues have to wake, and of no others: whoever reads the
    /// others looks by himself. Wakes for what was published before this held come later.
    fn sleep_on(&mut self, queues: &[&str]) -> impl Future<Output = Result<()>> + Send {
        let _ = queues;
        async { Ok(()) }
    }
}

/// A hint that work may exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// In this queue.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    Queue(String),
    /// Somewhere: wakes may have been missed, or they do not say where.
    All,
}
