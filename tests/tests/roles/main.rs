//! Roles with what each needs and no more (PostgreSQL).

mod lacking;
mod matrix;
mod operating;
mod rotated;
mod work;

use outbox::TableNames;
use outbox::ops::Roles;
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::roles::grant;
use sqlx::postgres::{PgPool, PgPoolOptions};

/// The tables of a database, granted to roles of its own.
struct Granted<'a> {
    db: &'a Db,
    roles: Roles,
}

impl<'a> Granted<'a> {
    /// With names that have to be quoted.
    async fn new(db: &'a Db, names: &TableNames, timers: bool) -> Self {
        let mut roles = Roles::default();
        let name = |what: &str| format!("{what} {}", unique("of"));
        roles.producer = name("Pub%s");
        roles.consumer = name("Con'sumer");
        roles.operator = name("Op");
        roles.timers = timers;
        grant(db.pg(), names, &roles).await;
        // It can be repeated.
        grant(db.pg(), names, &roles).await;
        Self { db, roles }
    }

    fn pool(&self, role: &str) -> PgPool {
        let options = (*self.db.pg().connect_options()).clone().username(role);
        PgPoolOptions::new().max_connections(4).connect_lazy_with(options)
    }

    fn producer(&self) -> PgPool {
        self.pool(&self.roles.producer)
    }

    fn consumer(&self) -> PgPool {
        self.pool(&self.roles.consumer)
    }

    fn operator(&self) -> PgPool {
        self.pool(&self.roles.operator)
    }

    async fn end(self, pools: &[&PgPool]) {
        for pool in pools {
            pool.close().await;
        }
        for role in [&self.roles.producer, &self.roles.consumer, &self.roles.operator] {
            self.db.exec(format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\"")).await;
        }
    }
}
