//! Where calls are made: a pool of one connection, so that whatever a dropped call leaves
//! behind is in the way of the next one.

use std::time::Duration;

use outbox::ops::Operator;
use outbox::testing::store::{Claim, Expects, Lease, PgStore, SqliteStore, Store, new_token};
use outbox::{App, Outgoing, Publisher};
use outbox_tests::db::{Db, Pool};
use outbox_tests::letters::death;
use outbox_tests::proxy::Proxy;
use outbox_tests::wait::PATIENCE;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::super::LEASE;

pub struct Ground<'a> {
    /// Looks on.
    pub db: &'a Db,
    pub pool: Pool,
    pub publisher: Publisher,
    pub operator: Operator,
}

/// What there is before a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Nothing,
    Message,
    Timer,
    Letter,
    Resolved,
    Pause,
    /// Nor are there tables.
    NoTables,
    /// A letter in a table of months.
    Months,
}

impl<'a> Ground<'a> {
    pub async fn of(db: &'a Db) -> Self {
        let pool = match &db.pool {
            Pool::Postgres(_) => {
                // Or an answer may be there before the call that asked has waited for it once.
                let options = Proxy::before(db).await.options(db).application_name("swept");
                let one = PgPoolOptions::new().max_connections(1);
                Pool::Postgres(one.connect_with(options).await.unwrap())
            }
            Pool::Sqlite(pool) => {
                let one = SqlitePoolOptions::new().max_connections(1);
                let options = (*pool.connect_options()).clone();
                Pool::Sqlite(one.connect_with(options).await.unwrap())
            }
        };
        let (publisher, names) = (Publisher::new(db.names.clone()), db.names.clone());
        let operator = match &pool {
            Pool::Postgres(pool) => Operator::postgres(pool.clone(), names),
            Pool::Sqlite(pool) => Operator::sqlite(pool.clone(), names),
        };
        Self { db, pool, publisher, operator }
    }

    pub fn app(&self) -> App {
        let app = match &self.pool {
            Pool::Postgres(pool) => App::postgres(pool.clone()),
            Pool::Sqlite(pool) => App::sqlite(pool.clone()),
        };
        app.names(self.db.names.clone()).only([])
    }

    /// Puts everything as it has to be before a call.
    pub async fn prepare(&self, before: Before) {
        let db = self.db;
        if matches!(before, Before::NoTables | Before::Months) {
            for table in ["outbox", "outbox_dlq", "outbox_paused", "_outbox_migrations"] {
                db.exec(format!("DROP TABLE IF EXISTS {table}")).await;
            }
        }
        match before {
            Before::NoTables => return,
            Before::Months => db.migrate().await,
            _ => {
                for table in ["outbox", "outbox_dlq", "outbox_paused"] {
                    db.exec(format!("DELETE FROM {table}")).await;
                }
            }
        }
        match before {
            Before::Message => drop(db.publish("q", 1).await),
            Before::Timer => {
                let timer = Outgoing::new("q", &1).timer_id("t").delay(LEASE);
                db.send(timer).await;
            }
            Before::Letter | Before::Resolved | Before::Months => {
                db.publish("q", 1).await;
                match &db.pool {
                    Pool::Postgres(pool) => bury(&PgStore::new(pool, db.names.clone())).await,
                    Pool::Sqlite(pool) => bury(&SqliteStore::new(pool, db.names.clone())).await,
                }
                if before == Before::Resolved {
                    db.exec("UPDATE outbox_dlq SET status = 'resolved'").await;
                }
            }
            Before::Pause => db.exec("INSERT INTO outbox_paused (queue) VALUES ('q')").await,
            Before::Nothing | Before::NoTables => {}
        }
    }

    /// Connections of its pool.
    pub fn size(&self) -> u32 {
        match &self.pool {
            Pool::Postgres(pool) => pool.size(),
            Pool::Sqlite(pool) => pool.size(),
        }
    }

    /// Sessions of it, and of what was made on its pool (PostgreSQL).
    pub async fn sessions(&self) -> i64 {
        let open = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'swept'";
        self.db.int(open).await
    }

    /// What a dropped call leaves to be done is done.
    ///
    /// # Errors
    /// When a session stays inside a transaction.
    pub async fn rests(&self) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while !self.is_at_rest().await {
            if Instant::now() > end {
                return Err("a session stays inside a transaction".into());
            }
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    async fn is_at_rest(&self) -> bool {
        match &self.pool {
            Pool::Postgres(pool) => {
                let inside = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'swept'
                    AND state LIKE 'idle in transaction%'";
                pool.num_idle() == pool.size() as usize && self.db.int(inside).await == 0
            }
            Pool::Sqlite(pool) => {
                let rests = pool.num_idle() == pool.size() as usize;
                if rests {
                    // Who has the lock keeps it waiting, and after 5 s fails it.
                    self.db.lock().await.release().await;
                }
                rests
            }
        }
    }
}

/// The first row that is due, leased.
pub async fn claimed<S: Store>(store: &S) -> Lease {
    let token = new_token();
    let taken = store.claim(&[claim(token)]).await.unwrap();
    Lease { id: taken[0].rows[0].row.id, token }
}

pub fn claim(token: Uuid) -> Claim {
    Claim {
        queues: ["q".to_owned()].into(),
        limit: 1,
        lease_ttl: LEASE,
        token,
        after: None,
        expects: Expects::Plenty,
        max_deliveries: None,
    }
}

async fn bury<S: Store>(store: &S) {
    let lease = claimed(store).await;
    assert_eq!(store.bury(&[death(lease)]).await.unwrap(), [true]);
    store.close().await;
}
