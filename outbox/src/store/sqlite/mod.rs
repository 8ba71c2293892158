//! SQLite: one connection that writes, one that watches and one that reads beside it. Of the
//! user's pool, after the start, only what handlers take as `Tx`.

mod anew;
mod batch;
mod bench;
mod claim;
mod connect;
mod counts;
mod depth;
mod desk;
mod doctor;
mod lend;
mod letters;
mod letters_write;
mod listen;
mod pauses;
mod peek;
mod place;
#[cfg(test)]
mod plans;
mod publish;
mod runs;
mod schema;
mod settle;
mod validate;
mod why;

use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor, Sqlite, Transaction};
use tracing::warn;

use batch::Batches;
pub use connect::{begin, connect};
use connect::{begin_writing, cutting_the_log};
pub(crate) use connect::{is_private, names_a_uri, open, options, with_a_log};
pub(crate) use desk::SqliteDesk;
pub(crate) use lend::SqliteLender;
use place::Place;
pub(crate) use publish::PublishSql;
pub(crate) use schema::sql as schema_sql;
use validate::validate;

use super::counted::counted;
use super::names::TableNames;
use super::{Landed, Lease, Pausable, Store, statements, without_pauses};
use crate::error::StoreError;
use crate::schema::SchemaMismatch;
use crate::telemetry::TARGET;

statements! {
    struct EngineSql in "sql" {
        claim_places, claim_read, claim_read_later, abandon, next_due, depth, depth_dlq,
    }
}

/// What the connections may keep of the file, in KiB: the pages of a claim, and those on
/// the way to a row. As SQLite is built here, one uses up what all may: with 2 MiB each, its
/// default, a single large row fills eight, because what lies behind a payload is found by
/// reading every page of it.
const WRITER_PAGES: &str = "-1024";
const READER_PAGES: &str = "-256";
/// When a claim that failed beside others is made again.
const AGAIN: Duration = Duration::from_millis(100);

/// The tables of one file, for the engine.
#[derive(Clone)]
pub struct SqliteStore(Arc<Inner>);

struct Inner {
    /// One connection: SQLite has one writer at a time anyway, and waiting in
    /// the pool's queue is fairer than waiting for the file's lock.
    writer: SqlitePool,
    reader: SqlitePool,
    place: Place,
    names: TableNames,
    sql: Pausable<EngineSql>,
    batches: Arc<Batches>,
    publish: PublishSql,
}

impl SqliteStore {
    /// A store on the file, and with the settings, of the user's pool. Connects
    /// when first used.
    pub fn new(users: &SqlitePool, names: TableNames) -> Self {
        let options = (*users.connect_options()).clone();
        let pool = |connections| {
            SqlitePoolOptions::new()
                .max_connections(connections)
                .test_before_acquire(false)
                // A call that is dropped inside a transaction would leave the
                // connection in it, and the next write would wait for ever to be
                // committed.
                .after_release(|connection, _| {
                    Box::pin(async move { Ok(is_out_of_transactions(connection).await) })
                })
        };
        let sql = Pausable::new(EngineSql::new(&names), EngineSql::with(&names, without_pauses));
        let publish = PublishSql::new(&names);
        let batches = Arc::new(Batches::new(&names));
        let prepare = Arc::clone(&batches);
        let writer = pool(1).after_connect(move |connection, _| {
            let prepare = Arc::clone(&prepare);
            Box::pin(async move { batch::prepare(connection, &prepare).await })
        });
        let cutting = cutting_the_log(options.clone().pragma("temp_store", "memory"));
        let writer = writer.connect_lazy_with(cutting.pragma("cache_size", WRITER_PAGES));
        let place = Place::of(&options);
        let opened = place.clone();
        // As many rows as a claim has: with fewer, SQLite's thread waits for them to be read.
        let buffered = options.row_buffer_size(1000).pragma("cache_size", READER_PAGES);
        let reader = pool(2).after_connect(move |_, _| {
            opened.opened();
            Box::pin(async { Ok(()) })
        });
        let reader = reader.connect_lazy_with(buffered);
        Self(Arc::new(Inner { writer, reader, place, names, sql, batches, publish }))
    }

    async fn begin(
        &self,
        action: &'static str,
    ) -> Result<Transaction<'static, Sqlite>, StoreError> {
        begin_writing(&self.0.writer).await.map_err(unless_sent(action))
    }
}

/// Rolls back what is open. SQLite may have done that by itself, and told it by the error of the
/// statement: such a connection begins no transaction any more.
async fn is_out_of_transactions(connection: &mut SqliteConnection) -> bool {
    !connection.is_in_transaction() || connection.execute("ROLLBACK").await.is_ok()
}

/// For what begins with the writer's connection: where that was not to be had, nothing was sent.
fn unless_sent(action: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| {
        let unsent = matches!(error, sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed);
        let failed = StoreError::of(action)(error);
        StoreError { perhaps_done: failed.perhaps_done && !unsent, unsent, ..failed }
    }
}

/// A statement of ours, whose text was made from a file and checked names.
fn query(sql: &Arc<str>) -> sqlx::query::Query<'static, Sqlite, SqliteArguments> {
    sqlx::query(AssertSqlSafe(Arc::clone(sql)))
}

impl Store for SqliteStore {
    type Wakes = listen::SqliteWakes;

    async fn claim(&self, claims: &[super::Claim]) -> super::Result<Vec<super::Taken>> {
        let mut taken: Vec<super::Taken> = Vec::with_capacity(claims.len());
        for claim in claims {
            match self.claim_rows(claim).await {
                Ok(rows) => taken.push(rows),
                // What was taken before it is taken: each claim is a transaction. The next
                // one fails again, or it has passed.
                Err(failed)
                    if !failed.perhaps_done && taken.iter().any(|one| !one.rows.is_empty()) =>
                {
                    warn!(target: TARGET, error = %failed, "some rows were not claimed");
                    let again = || super::Taken { next: Some(AGAIN), ..super::Taken::default() };
                    taken.resize_with(claims.len(), again);
                    break;
                }
                Err(failed) => return Err(failed),
            }
        }
        Ok(taken)
    }

    async fn ack(&self, leases: &[Lease]) -> super::Result<Landed> {
        self.ack_rows(leases).await
    }

    async fn ack_publishing(
        &self,
        acks: &[super::Handled<'_>],
    ) -> super::Result<(Landed, super::Inserted)> {
        self.ack_and_publish(acks).await
    }

    async fn retry(&self, retries: &[super::Retry]) -> super::Result<Landed> {
        self.retry_rows(retries).await
    }

    async fn bury(&self, deaths: &[super::Death<'_>]) -> super::Result<Landed> {
        self.bury_rows(deaths).await
    }

    async fn release(&self, releases: &[super::Release]) -> super::Result<Landed> {
        self.release_rows(releases).await
    }

    async fn extend(&self, leases: &[super::Extend]) -> super::Result<Landed> {
        self.extend_leases(leases).await
    }

    async fn abandon(&self, claim: &super::Claim) -> super::Result<u64> {
        self.abandon_claim(claim).await
    }

    async fn listen(&self) -> super::Result<Self::Wakes> {
        listen::SqliteWakes::connect(&self.0.reader).await
    }

    fn keeps_dead_letters(&self) -> bool {
        self.0.names.dlq().is_some()
    }

    async fn validate(&self, _: bool) -> super::Result<SchemaMismatch> {
        let found = validate(&self.0.reader, &self.0.names).await?;
        self.0.sql.set(found.unpausable);
        Ok(found)
    }

    async fn ping(&self) -> super::Result<()> {
        // `SELECT 1` would not look at the file.
        self.0
            .reader
            .execute("PRAGMA schema_version")
            .await
            .map(drop)
            .map_err(StoreError::of("ping"))?;
        if self.0.place.is_lost() {
            let why = "the file was replaced or deleted under this program: restart it";
            return Err(StoreError::new("ping", why, false));
        }
        Ok(())
    }

    async fn depths(&self, queues: &[String], most: usize) -> super::Result<Vec<super::Depth>> {
        self.depths_of(queues, most).await
    }

    fn connections(&self) -> super::Connections {
        let (reads, writes) = (counted(&self.0.reader), counted(&self.0.writer));
        super::Connections { open: reads.0 + writes.0, idle: reads.1 + writes.1, most: 3 }
    }

    async fn close(&self) {
        self.0.reader.close().await;
        self.0.writer.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Claim, Expects, new_token};

    /// The pool would warn of an error.
    #[tokio::test]
    async fn a_connection_whose_transaction_sqlite_has_ended_is_given_up_without_an_error() {
        let table = "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)";
        let twice = ["INSERT OR FAIL INTO t VALUES (1)", "INSERT OR ROLLBACK INTO t VALUES (1)"];
        for (insert, goes_on) in twice.into_iter().zip([true, false]) {
            let users = SqlitePoolOptions::new().connect_lazy("sqlite::memory:").unwrap();
            let mut connection = users.acquire().await.unwrap();
            connection.execute(table).await.unwrap();
            let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
            tx.execute(insert).await.unwrap_err();
            // As one is left whose call was dropped.
            std::mem::forget(tx);
            assert!(connection.is_in_transaction(), "{insert}");
            assert_eq!(is_out_of_transactions(&mut connection).await, goes_on, "{insert}");
        }
    }

    #[tokio::test]
    async fn what_waited_in_vain_for_the_writer_s_connection_was_not_sent() {
        let users = SqlitePoolOptions::new().connect_lazy("sqlite::memory:").unwrap();
        let store = SqliteStore::new(&users, TableNames::default());
        let _taken = store.0.writer.acquire().await.unwrap();
        // Until the pool gives up.
        tokio::time::pause();
        let claim = Claim {
            queues: Arc::from([String::from("q")]),
            limit: 1,
            lease_ttl: Duration::from_secs(60),
            token: new_token(),
            after: None,
            max_deliveries: None,
            expects: Expects::Plenty,
        };
        let lease = Lease { id: 1, token: claim.token };
        let acked = store.ack(&[lease]).await.map(drop);
        let abandoned = store.abandon(&claim).await.map(drop);
        for failed in [acked.unwrap_err(), abandoned.unwrap_err()] {
            assert!(failed.transient && failed.unsent && !failed.perhaps_done, "{failed}");
        }
    }
}
