//! PostgreSQL. The engine has a small pool of its own, and one connection that listens. From the
//! user's pool it takes, after the start, only the connections that handlers use through `Tx`.

mod adopt;
mod claim;
mod connect;
mod counts;
mod depth;
mod desk;
mod doctor;
mod elsewhere;
mod grants;
mod indexes;
mod kept;
mod lend;
mod letters;
mod listen;
mod partitions;
mod pauses;
pub(crate) mod publish;
mod rights;
mod runs;
mod schema;
mod settle;
mod sleepers;
mod taken;
mod time;
mod transaction;
mod vacuum;
mod validate;
mod why;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgArguments, PgConnection, PgPool, PgPoolOptions};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Executor, Postgres};
use tokio::time::{Instant, timeout};

use connect::Source;
pub(crate) use connect::place;
use depth::sample_sql;
pub(crate) use desk::PgDesk;
pub(crate) use grants::sql as grants_sql;
use kept::{IdleConnections, One, Used};
pub(crate) use lend::PgLender;
pub(crate) use schema::sql as schema_sql;
pub(crate) use transaction::Closing;
use vacuum::Vacuum;

use super::names::TableNames;
use super::{Connections, Pausable, Store as _, statements, without_pauses};
use crate::error::{StoreError, takes_no_writes};
use crate::unpoisoned::Locked as _;

/// Connections beside the one that listens. Claims and settles overlap on two. The others serve
/// subscribers that become busy at the same moment, dead letters and the vacuum.
const MAX_CONNECTIONS: u32 = 4;
/// A statement that takes longer is given up: its answer may never come.
const STATEMENT_LIMIT: Duration = Duration::from_secs(30);
/// After this long with one statement at a time, one connection is enough.
const QUIET: Duration = Duration::from_secs(5);
/// How long it may take to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The settings that the statements of the engine rely on, whatever the database's defaults are.
///
/// - READ COMMITTED, for SKIP LOCKED and for the re-check of locked rows.
/// - The plans. Each statement has one plan that is right for every table: its index, read in
///   order. A planner that goes by what it knew of the table when it was empty, or full, finds
///   other plans. For the same reason an id is looked up as `ANY(ARRAY[..])`: for an equality of a
///   join the index may be read in its order, which is all of it. Planning anew for every call
///   costs four times what an idle claim does. Compiling the plan of a large table costs more than
///   running it.
/// - The lock timeout, unless there is a shorter one. The server does not know that a connection
///   was given up. The session would wait for as long as a table is locked, with a new one beside
///   it every half minute, and in the end do what nobody waits for. A row that somebody has locked
///   keeps the others of its batch waiting no longer either. The timeout is half of the time after
///   which a waiting session looks for a deadlock: of two that wait for each other the engine gives
///   way, and not the transaction of a user. (The user's transaction gives way if it has waited for
///   the other half before, as where a batch waits for several rows, one after the other.) It is
///   half of a `statement_timeout` of the role at most: then the error mostly tells of the lock.
/// - A limit for what the server has sent and nobody takes, as when the process was stopped or its
///   machine is gone. It ends the session after half a minute, unless another limit was set. A
///   claim whose rows are on their way has locked them, and commits only when they have all been
///   taken.
const SESSION: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off;
    SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
    SELECT set_config('lock_timeout', extract(epoch FROM half) * 1000 || 'ms', false)
    FROM (SELECT greatest('1ms', least('5s', current_setting('deadlock_timeout')::interval / 2,
        nullif(current_setting('statement_timeout')::interval, '0') / 2)) AS half) AS patience
    WHERE current_setting('lock_timeout')::interval NOT BETWEEN '1ms' AND half;
    SELECT set_config('tcp_user_timeout', '30s', false)
    WHERE current_setting('tcp_user_timeout') = '0'";

/// In addition, where settles do not wait for the disk.
const ASYNC: &str = "SET synchronous_commit = off";
/// Undoes that for one transaction: back to how the connection was opened.
const WAITED: &str = "SET LOCAL synchronous_commit TO DEFAULT";

statements! {
    pub(super) struct EngineSql {
        claim, claim_few, claim_full, ack, ack_publishing, retry, bury, release, extend, held, abandon,
    }
}

/// The tables of one database, for the engine.
#[derive(Clone)]
pub struct PgStore(Arc<Inner>, Commits);

/// Whether the answer to a settle waits until the server has it on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commits {
    /// As the user's pool has it, which is the server's default.
    Default,
    /// It does not. What a crash of the server undoes is delivered again.
    Async,
    /// As `Default`, on connections that are set up for `Async`.
    Waited,
}

struct Inner {
    pool: PgPool,
    kept: IdleConnections,
    source: Source,
    /// A pool of one connection. It is outside of `pool`, so that waiting for a notification never
    /// keeps a claim waiting for a connection. Each subscription has a new one: a silent connection
    /// never comes back to its pool.
    listening: Mutex<Option<PgPool>>,
    /// When more than one connection was last in use. Once that is long ago, each statement closes
    /// another connection, as long as there is one to spare.
    busy: Mutex<Instant>,
    vacuum: Vacuum,
    names: TableNames,
    sql: Pausable<EngineSql>,
    sample: (Option<Arc<str>>, Arc<str>),
}

impl PgStore {
    /// As [`PgStore::with_commits`], with the commits that the pool has.
    #[cfg(feature = "testing")]
    pub fn new(users: &PgPool, names: TableNames) -> Self {
        Self::with_commits(users, names, Commits::Default)
    }

    /// A store on the server of the user's pool, with that pool's connect options, except for how
    /// many statements a connection keeps. It connects when it is first used.
    pub fn with_commits(users: &PgPool, names: TableNames, commits: Commits) -> Self {
        let source = Source::new(users);
        let pool = PgPoolOptions::new()
            .max_connections(MAX_CONNECTIONS)
            // See `PgStore::acquire`.
            .acquire_timeout(CONNECT_LIMIT)
            // See `Inner::busy`.
            .idle_timeout(None)
            // Saves a round trip for each statement. A dead connection shows as an error, and every
            // statement is retried or safe to lose.
            .test_before_acquire(false)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    connection.execute(SESSION).await?;
                    if commits == Commits::Async {
                        connection.execute(ASYNC).await?;
                    }
                    Ok(())
                })
            })
            .connect_lazy_with(source.first());
        let sql = Pausable::new(EngineSql::new(&names), EngineSql::with(&names, without_pauses));
        let sample = sample_sql(&names);
        let busy = Mutex::new(Instant::now());
        let (listening, vacuum) = (Mutex::default(), Vacuum::new());
        let kept = IdleConnections::default();
        let inner = Inner { pool, kept, source, listening, busy, vacuum, names, sql, sample };
        Self(Arc::new(inner), commits)
    }

    /// Puts `next` in the place of the pool that has listened so far, and closes that one.
    fn listen_on(&self, next: Option<PgPool>) -> Option<PgPool> {
        let mut listening = self.0.listening.locked();
        let last = std::mem::replace(&mut *listening, next);
        if let Some(last) = &last {
            // Marks it as closed. Its connection is closed when it comes back, if ever.
            drop(last.close());
        }
        last
    }
}

impl PgStore {
    /// Runs one statement, for a limited time.
    async fn bounded<T>(
        &self,
        action: &'static str,
        run: impl for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        let spare = self.has_spare_connections();
        let mut used = Used { store: self, one: None };
        // Only a connection was refused. That may pass, even for a password that is just being
        // replaced.
        let unsent = |error| StoreError {
            perhaps_done: false,
            unsent: true,
            transient: true,
            ..StoreError::of(action)(error)
        };
        let one = used.one.insert(self.acquire().await.map_err(unsent)?);
        let Ok(result) = timeout(STATEMENT_LIMIT, run(&mut one.connection)).await else {
            return Err(StoreError::new(action, "no answer within 30 s", true));
        };
        if let Some(one) = used.one.take() {
            self.put_back(one, spare, result.as_ref().err());
        }
        result.map_err(StoreError::of(action))
    }

    /// Each idle connection has to show that it lives before it is used again. Where one gave no
    /// answer the others may not either. Finding that out by a statement on each would take as many
    /// statement limits.
    fn distrust(&self) {
        self.0.kept.distrust();
        let idle: Vec<_> = std::iter::from_fn(|| self.0.pool.try_acquire()).collect();
        for connection in idle {
            One::fresh(connection).leave();
        }
    }

    /// Puts back a connection that has its answer.
    fn put_back(&self, one: One, spare: bool, failed: Option<&sqlx::Error>) {
        if failed.is_some() {
            self.distrust();
        }
        let closed = match failed {
            None => {
                let another = || self.0.kept.oldest().or_else(|| self.0.pool.try_acquire());
                let closed = spare.then(another).flatten();
                self.0.kept.give_back(one);
                closed
            }
            Some(failed) if takes_no_writes(failed) => Some(one.connection),
            Some(_) => {
                one.leave();
                None
            }
        };
        if let Some(connection) = closed {
            // How it ends does not matter.
            tokio::spawn(timeout(CONNECT_LIMIT, connection.close()));
        }
    }

    fn has_spare_connections(&self) -> bool {
        let Connections { open, idle, .. } = self.connections();
        let mut busy = self.0.busy.locked();
        if idle < open {
            *busy = Instant::now();
        }
        idle > 1 && busy.elapsed() > QUIET
    }
}

type Statement = Query<'static, Postgres, PgArguments>;

/// A statement of ours: its text was made from a file and checked names.
fn query(sql: &Arc<str>) -> Statement {
    sqlx::query(AssertSqlSafe(Arc::clone(sql)))
}

/// A statement that no connection keeps. Where a pooler in transaction mode hands out sessions, the
/// name of a kept one may be taken already, or stand for another statement.
fn once(text: &Arc<str>) -> Statement {
    query(text).persistent(false)
}
