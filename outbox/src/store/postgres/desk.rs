//! The tables for operators: on the user's pool, at READ COMMITTED, one connection at
//! a time.

use sqlx::postgres::PgPool;

use crate::store::names::TableNames;

/// What operators do, on PostgreSQL. Each kind of work stands in a file of its own.
#[derive(Debug, Clone)]
pub(crate) struct PgDesk {
    pool: PgPool,
    pub(super) names: TableNames,
}

impl PgDesk {
    pub(crate) fn new(pool: PgPool, names: &TableNames) -> Self {
        Self { pool, names: names.clone() }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }
}
