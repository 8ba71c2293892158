//! Roles of few rights, as `migrate --print-grants` makes them.

use outbox::TableNames;
use outbox::ops::{Operator, Roles};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor};
use tokio::sync::Mutex;

use crate::db::{Db, Pool};

/// `consumer`: the engine of every test logs in as that role. `operator`: so does what
/// tests do as operators. The rest of what they do stays the owner's.
pub const ROLE: &str = "OUTBOX_TEST_PG_ROLE";

/// Names that are the server's, so all tests share them.
#[must_use]
pub fn roles() -> Roles {
    let mut roles = Roles::default();
    roles.producer = "outbox_tests_producer".into();
    roles.consumer = "outbox_tests_consumer".into();
    roles.operator = "outbox_tests_operator".into();
    roles
}

/// The role that is used, if one is.
fn used() -> Option<&'static str> {
    match std::env::var(ROLE).as_deref() {
        Ok("consumer") => Some("consumer"),
        Ok("operator") => Some("operator"),
        Ok(other) => panic!("{ROLE} is {other:?}; it can be `consumer` or `operator`"),
        Err(_) => None,
    }
}

/// As the engine logs in.
#[must_use]
pub fn of_engine(options: PgConnectOptions) -> PgConnectOptions {
    if used() == Some("consumer") { options.username(&roles().consumer) } else { options }
}

/// The tables for operators, as they log in.
#[must_use]
pub fn operator(db: &Db, names: TableNames) -> Operator {
    match &db.pool {
        Pool::Postgres(pool) if used() == Some("operator") && !db.own_server => {
            let options = (*pool.connect_options()).clone().username(&roles().operator);
            let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options);
            Operator::postgres(pool, names)
        }
        Pool::Postgres(pool) => Operator::postgres(pool.clone(), names),
        Pool::Sqlite(pool) => Operator::sqlite(pool.clone(), names),
    }
}

/// Grants the roles what they need of tables that were just made, if they are used.
///
/// # Panics
/// When the server refuses.
pub async fn grant_if_used(pool: &PgPool, names: &TableNames) {
    if used().is_some() {
        grant(pool, names, &roles()).await;
    }
}

/// Tables that are made from now on are those of the handlers, for which an application
/// has grants of its own.
///
/// # Panics
/// When the server refuses.
pub async fn grant_own_tables_if_used(pool: &PgPool) {
    if used() == Some("consumer") {
        let consumer = roles().consumer;
        let sql = format!("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {consumer}");
        pool.execute(AssertSqlSafe(sql)).await.unwrap();
    }
}

/// Makes the roles, which may log in, and grants them what they need.
///
/// # Panics
/// When the server refuses.
pub async fn grant(pool: &PgPool, names: &TableNames, roles: &Roles) {
    // Roles are the server's: two that change one at once fail.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
    let _one = ONE_AT_A_TIME.lock().await;
    let mut sql = Operator::postgres(pool.clone(), names.clone()).grants(roles).unwrap();
    for role in [&roles.producer, &roles.consumer, &roles.operator] {
        sql.push_str(&format!("ALTER ROLE \"{role}\" LOGIN;\n"));
    }
    pool.execute(AssertSqlSafe(sql)).await.unwrap();
}
