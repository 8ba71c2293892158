//! What a case works with: a store, transactions to publish in, and a look at
//! the tables that does not go through the code under test.

#[macro_use]
mod cases;
pub mod fencing;
mod memory;
mod postgres;
mod raw;
mod sql;
mod sqlite;
mod steps;

use std::future::Future;
use std::time::Duration;

use outbox::testing::store::Store;
use outbox::{Publisher, Row, TableNames};
use sqlx::Executor;

pub use cases::run;
pub use fencing::Settle;
pub use memory::Memory;
pub use postgres::Postgres;
pub use raw::{RawLetter, RawRow, micros};
pub use sqlite::Sqlite;
pub use steps::{Steps, TTL, about, death, lease, refenced, retry};

/// One store with its tables, made for one case.
pub trait Bench: Clone + Send + Sync + 'static {
    type Store: Store;
    type Tx: outbox::Transaction + Send;
    type Mark;

    /// Whether others can write while a transaction has written.
    const WRITERS_OVERLAP: bool;
    /// Its rows are locked for moments only.
    const IN_MEMORY: bool = false;

    /// Empty tables; `None` when the database is not there.
    fn open() -> impl Future<Output = Option<Self>>;
    /// Removes everything.
    fn close(&self) -> impl Future<Output = ()>;
    fn store(&self) -> &Self::Store;
    fn publisher(&self) -> &Publisher;
    /// The same tables, but dead letters are not kept.
    fn without_dlq(&self) -> Self;

    fn begin(&self) -> impl Future<Output = Self::Tx>;
    fn commit(&self, tx: Self::Tx) -> impl Future<Output = ()>;
    fn rollback(&self, tx: Self::Tx) -> impl Future<Output = ()>;
    fn savepoint(&self, tx: &mut Self::Tx) -> impl Future<Output = Self::Mark>;
    fn rollback_to(&self, tx: &mut Self::Tx, mark: &Self::Mark) -> impl Future<Output = ()>;
    fn release(&self, tx: &mut Self::Tx, mark: Self::Mark) -> impl Future<Output = ()>;
    /// As `Publisher::pending`, on a connection of its own.
    fn pending(&self, queue: &str, limit: u32) -> impl Future<Output = Vec<Row>>;

    /// All rows in order of id.
    fn rows(&self) -> impl Future<Output = Vec<RawRow>>;
    /// All dead letters in order of id.
    fn letters(&self) -> impl Future<Output = Vec<RawLetter>>;
    /// The store's clock, in microseconds since 1970.
    fn now(&self) -> impl Future<Output = i64>;
    /// Lets time pass, by putting every time in the tables back.
    fn age(&self, by: Duration) -> impl Future<Output = ()>;
    /// Overwrites the stored headers, as another writer could have.
    fn set_headers(&self, id: i64, headers: Option<&str>) -> impl Future<Output = ()>;

    /// Overwrites the count of deliveries, as an operator could.
    fn set_deliveries(&self, id: i64, count: u32) -> impl Future<Output = ()>;

    /// Takes the dead-letter table away.
    fn break_dlq(&self) -> impl Future<Output = ()>;
    /// Puts it back.
    fn mend_dlq(&self) -> impl Future<Output = ()>;
    /// Makes the dead-letter table refuse the rows of one queue; the memory
    /// store refuses all.
    fn refuse_letters_of(&self, queue: &str) -> impl Future<Output = ()>;
}

/// A bench whose tables are in a database.
pub trait SqlBench: Bench {
    type Database: sqlx::Database;
    type Pool: outbox::schema::Pool;

    const DATABASE: outbox::schema::Database;

    fn pool(&self) -> &Self::Pool;
    fn names(&self) -> &TableNames;
    /// The same database with tables of other names, not yet made.
    fn with_names(&self, names: TableNames) -> Self;
    /// Runs any SQL.
    fn execute(&self, sql: &str) -> impl Future<Output = ()>;
    /// A number.
    fn number(&self, sql: &str) -> impl Future<Output = i64>;
}

/// Runs SQL on a pool of either database.
async fn execute<'p, P>(pool: &'p P, sql: &str)
where
    &'p P: Executor<'p>,
{
    let done = pool.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))).await;
    if let Err(error) = done {
        panic!("{sql}: {error}");
    }
}
