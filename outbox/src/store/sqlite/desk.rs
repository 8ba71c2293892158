//! The tables for operators: on the user's pool, one connection at
//! a time.

use sqlx::sqlite::SqlitePool;

use crate::store::names::TableNames;

/// What operators do, on SQLite. Each kind of work stands in a file of its own.
#[derive(Debug, Clone)]
pub(crate) struct SqliteDesk {
    pool: SqlitePool,
    pub(super) names: TableNames,
}

impl SqliteDesk {
    pub(crate) fn new(pool: SqlitePool, names: &TableNames) -> Self {
        Self { pool, names: names.clone() }
    }

    pub(crate) fn pool(&self) -> &SqlitePool {
        &self.pool
    }
}
