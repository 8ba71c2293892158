//! SQLite. The engine has one connection that writes, one that watches the file, and one that reads
//! beside them. From the user's pool it takes, after the start, only the connections that handlers
//! use through `Tx`.

mod anew;
#[cfg(feature = "testing")]
mod apart;
mod batch;
mod claim;
mod connect;
mod counts;
mod depth;
mod desk;
mod doctor;
mod indexes;
mod lend;
mod letters;
mod listen;
mod pauses;
mod place;
pub(crate) mod publish;
mod runs;
mod schema;
mod settle;
mod taken;
mod validate;
mod why;

use std::sync::Arc;

use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor, Sqlite, Transaction};

use batch::Batches;
pub use connect::{begin, connect};
use connect::{begin_writing, cutting_the_log};
pub(crate) use connect::{
    file_in, names_a_uri, open, options, why_private, why_read_only, with_a_log,
};
pub(crate) use desk::SqliteDesk;
pub(crate) use lend::SqliteLender;
use place::Place;
use publish::PublishSql;
pub(crate) use schema::sql as schema_sql;

use super::names::TableNames;
use super::{Pausable, statements, without_pauses};
use crate::error::StoreError;

statements! {
    struct EngineSql {
        claim_places, claim_read, claim_read_later, abandon, next_due, depth, depth_dlq,
    }
}

/// How much of the file the connections may keep in memory, in KiB: the pages of a claim, and the
/// pages on the way to a row. As SQLite is built here, one connection uses up what all of them may.
/// With its default of 2 MiB each, a single large row fills eight MiB, because SQLite finds what
/// lies behind a payload by reading every page of the payload.
const WRITER_PAGES: &str = "-1024";
const READER_PAGES: &str = "-256";

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
    /// A store on the file of the user's pool, with that pool's connect options. It connects when it
    /// is first used.
    pub fn new(users: &SqlitePool, names: TableNames) -> Self {
        let options = (*users.connect_options()).clone();
        let pool = |connections| {
            SqlitePoolOptions::new()
                .max_connections(connections)
                .test_before_acquire(false)
                // If a call is dropped inside a transaction, the connection would stay in it, and
                // the next write would wait for ever to be committed.
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
        // As many rows as a claim has: with a smaller buffer, SQLite's thread waits for rows to be
        // read.
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

/// Rolls back an open transaction. SQLite may have rolled it back by itself, and reported that by
/// the error of the statement. Then the connection can begin no transaction any more.
async fn is_out_of_transactions(connection: &mut SqliteConnection) -> bool {
    !connection.is_in_transaction() || connection.execute("ROLLBACK").await.is_ok()
}

/// For what begins by taking the writer's connection: if that was not to be had, nothing was sent.
fn unless_sent(action: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| {
        let unsent = matches!(error, sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed);
        let failed = StoreError::of(action)(error);
        StoreError { perhaps_done: failed.perhaps_done && !unsent, unsent, ..failed }
    }
}

/// A statement of ours: its text was made from a file and checked names.
fn query(sql: &Arc<str>) -> sqlx::query::Query<'static, Sqlite, SqliteArguments> {
    sqlx::query(AssertSqlSafe(Arc::clone(sql)))
}

#[cfg(test)]
mod tests;
