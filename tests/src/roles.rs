//! Roles of few rights, as `migrate --print-grants` makes them.

use outbox::TableNames;
use outbox::ops::{Operator, Roles};
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{AssertSqlSafe, Executor};
use tokio::sync::Mutex;

/// `consumer`: the engine of every test logs in as that role; what tests do beside it
/// stays the owner's.
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

fn restricted() -> bool {
    match std::env::var(ROLE).as_deref() {
        Ok("consumer") => true,
        Ok(other) => panic!("{ROLE} is {other:?}; it can be `consumer`"),
        Err(_) => false,
    }
}

/// As the engine logs in.
#[must_use]
pub fn of_engine(options: PgConnectOptions) -> PgConnectOptions {
    if restricted() { options.username(&roles().consumer) } else { options }
}

/// Grants the roles what they need of tables that were just made, if they are used.
///
/// # Panics
/// When the server refuses.
pub async fn grant_if_used(pool: &PgPool, names: &TableNames) {
    if restricted() {
        grant(pool, names, &roles()).await;
    }
}

/// Tables that are made from now on are those of the handlers, for which an application
/// has grants of its own.
///
/// # Panics
/// When the server refuses.
pub async fn grant_own_tables_if_used(pool: &PgPool) {
    if restricted() {
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
