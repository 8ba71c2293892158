//! The store of the tests: a map under a lock. Its clock moves when a test moves it, or with
//! tokio's clock in a simulation. The store is also the executable specification of the other two.

mod audit;
mod claim;
mod depth;
mod publish;
mod settle;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

pub use audit::{Change, Statement};
pub use publish::MemoryTransaction;

use audit::{Audit, Locked};

use super::{Store, Wake, Wakes};
use crate::error::StoreError;
use crate::message::row::delay_micros;
use crate::message::{DeadLetter, Row};
use crate::schema::SchemaMismatch;
use crate::unpoisoned::Locked as _;

/// Longer than any lease.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Rows in memory. Clones share them.
#[derive(Clone)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
    /// The session whose statements these are, for the audit.
    session: u32,
}

pub(super) struct Tables {
    now: SystemTime,
    /// Where the clock stood when it began to run with tokio's.
    runs_since: Option<(SystemTime, Instant)>,
    last_id: i64,
    rows: BTreeMap<i64, Stored>,
    /// `None`: dead letters are not kept.
    dlq: Option<Vec<DeadLetter>>,
    /// Set by tests: burials fail as if the table were gone.
    dlq_broken: bool,
    audit: Option<Audit>,
}

/// A delay or a lease, bounded as in the databases: adding it cannot overflow then.
fn bounded(delay: Duration) -> Duration {
    Duration::from_micros(delay_micros(delay).unsigned_abs())
}

struct Stored {
    row: Row,
    /// The open transaction that wrote it last. Claims skip such a row, as
    /// `SKIP LOCKED` does.
    locked_by: Option<u64>,
}

impl MemoryStore {
    pub fn new(dead_letters: bool) -> Self {
        let tables = Tables {
            // A fixed date, so that no test depends on the day it runs.
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600),
            runs_since: None,
            last_id: 0,
            rows: BTreeMap::new(),
            dlq: dead_letters.then(Vec::new),
            dlq_broken: false,
            audit: None,
        };
        Self { tables: Arc::new(Mutex::new(tables)), session: 0 }
    }

    fn tables(&self) -> Locked<'_> {
        let mut tables = self.tables.locked();
        if let Some((then, since)) = tables.runs_since {
            tables.now = then + since.elapsed();
        }
        Locked { tables, session: self.session, written: false }
    }

    /// The same tables, used under the name of another process.
    #[must_use]
    pub fn session(&self, session: u32) -> Self {
        Self { tables: Arc::clone(&self.tables), session }
    }

    /// From now on the clock runs with tokio's, and `hook` hears of every statement that changes
    /// something. It is called under the lock of the tables.
    pub fn run(&self, hook: impl Fn(&Statement) + Send + Sync + 'static) {
        let mut tables = self.tables();
        tables.runs_since = Some((tables.now, Instant::now()));
        tables.audit = Some(Audit::new(Arc::new(hook)));
    }

    pub fn now(&self) -> SystemTime {
        self.tables().now
    }

    pub fn advance(&self, by: Duration) {
        let mut tables = self.tables();
        tables.now = tables.now.checked_add(by).unwrap_or(tables.now);
    }

    pub fn set_now(&self, now: SystemTime) {
        self.tables().now = now;
    }

    pub fn set_dead_letters(&self, keep: bool) {
        self.tables().dlq = keep.then(Vec::new);
    }

    pub fn break_dead_letters(&self, broken: bool) {
        self.tables().dlq_broken = broken;
    }

    /// Whether there is a row for which this holds.
    pub fn any(&self, such: impl Fn(&Row) -> bool) -> bool {
        self.tables().rows.values().any(|stored| such(&stored.row))
    }

    pub fn rows(&self) -> Vec<Row> {
        self.tables().rows.values().map(|stored| stored.row.clone()).collect()
    }

    /// Makes every lease old enough to be taken over.
    pub fn expire_leases(&self) {
        let mut tables = self.tables();
        let before = tables.now.checked_sub(CENTURY).unwrap_or(SystemTime::UNIX_EPOCH);
        for stored in tables.rows.values_mut() {
            stored.row.acquired_at = stored.row.acquired_at.map(|_| before);
        }
    }

    /// Continues every lease under a token that nobody else has.
    pub fn steal_leases(&self) {
        let (mut tables, token) = (self.tables(), super::new_token());
        let now = tables.now;
        for stored in tables.rows.values_mut().filter(|one| one.row.acquired_token.is_some()) {
            (stored.row.acquired_token, stored.row.acquired_at) = (Some(token), Some(now));
        }
    }

    /// Changes a stored row behind the engine's back, as an operator's SQL would.
    pub fn alter(&self, id: i64, change: impl FnOnce(&mut Row)) {
        if let Some(stored) = self.tables().rows.get_mut(&id) {
            change(&mut stored.row);
        }
    }

    /// Overwrites the stored headers, as a writer in another language could.
    pub fn set_headers(&self, id: i64, headers: Option<&str>) {
        self.alter(id, |row| row.headers = headers.map(Into::into));
    }

    pub fn dead_letters(&self) -> Vec<DeadLetter> {
        self.tables().dlq.clone().unwrap_or_default()
    }
}

impl Tables {
    /// That long from now, cut at ten years as in the other stores.
    fn after(&self, delay: Duration) -> SystemTime {
        self.now + Duration::from_micros(delay_micros(delay).unsigned_abs())
    }
}

impl Store for MemoryStore {
    type Wakes = NoWakes;

    async fn claim(&self, claims: &[super::Claim]) -> super::Result<Vec<super::Taken>> {
        let mut tables = self.tables();
        Ok(claims.iter().map(|claim| tables.claim(claim)).collect())
    }

    async fn ack(&self, leases: &[super::Lease]) -> super::Result<super::Landed> {
        Ok(self.tables().ack(leases))
    }

    async fn ack_publishing(
        &self,
        acks: &[super::Handled<'_>],
    ) -> super::Result<(super::Landed, super::Inserted)> {
        Ok(self.tables().ack_publishing(acks))
    }

    async fn retry(&self, retries: &[super::Retry]) -> super::Result<super::Landed> {
        Ok(self.tables().retry(retries))
    }

    async fn bury(&self, deaths: &[super::Death<'_>]) -> super::Result<super::Landed> {
        self.tables().bury(deaths)
    }

    async fn release(&self, releases: &[super::Release]) -> super::Result<super::Landed> {
        Ok(self.tables().release(releases))
    }

    async fn extend(&self, leases: &[super::Extend]) -> super::Result<super::Landed> {
        Ok(self.tables().extend(leases))
    }

    async fn abandon(&self, claim: &super::Claim) -> super::Result<u64> {
        Ok(self.tables().abandon(claim))
    }

    async fn listen(&self) -> super::Result<NoWakes> {
        Ok(NoWakes)
    }

    fn keeps_dead_letters(&self) -> bool {
        self.tables().dlq.is_some()
    }

    async fn validate(&self, _: bool) -> super::Result<SchemaMismatch> {
        Ok(SchemaMismatch::default())
    }

    async fn ping(&self) -> super::Result<()> {
        Ok(())
    }

    async fn depths(&self, queues: &[String], most: usize) -> super::Result<Vec<super::Depth>> {
        let tables = self.tables();
        Ok(queues.iter().map(|queue| tables.depth(queue, most)).collect())
    }

    fn connections(&self) -> super::Connections {
        super::Connections::default()
    }

    async fn close(&self) {}
}

/// The `TestBroker` drives the engine itself and needs no wakes.
pub struct NoWakes;

impl Wakes for NoWakes {
    async fn next(&mut self) -> Result<Wake, StoreError> {
        std::future::pending().await
    }
}
