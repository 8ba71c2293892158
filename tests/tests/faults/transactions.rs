//! Transactions that are begun and given up at once. sqlx 0.9.0 leaves a session inside
//! its transaction when `begin` is cancelled, and what the next one writes is seen by
//! nobody.

use std::time::Duration;

use outbox::schema::{migrate_tables, validate_schema};
use outbox::{
    AckPolicy, App, Context, FromContext, HandlerError, Outgoing, Subscriber, TableNames, Tx,
};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::{eventually, soon};
use sqlx::postgres::PgPoolOptions;
use tokio::time::timeout;

on_postgres!(
    a_storm_of_cancelled_begins_leaves_the_users_pool_as_it_was,
    a_migration_that_is_given_up_keeps_no_lock_and_can_be_made_again,
);

async fn a_storm_of_cancelled_begins_leaves_the_users_pool_as_it_was(db: &Db) {
    db.exec("CREATE TABLE seen (n bigint)").await;
    let options = (*db.pg().connect_options()).clone().application_name("users");
    let pool = PgPoolOptions::new().max_connections(3).connect_lazy_with(options);
    // Dropped after a millisecond: before, while or after its transaction begins.
    let begins = |ctx: Context| async move {
        let begin = async {
            let _tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
            std::future::pending::<Result<(), HandlerError>>().await
        };
        timeout(Duration::from_millis(1), begin).await?
    };
    let one = Subscriber::new("it", "q", begins).ack(AckPolicy::RejectOnError);
    let one = one.requires::<Tx<sqlx::Postgres>>();
    let app = App::postgres(pool.clone()).names(db.names.clone()).only([one]);
    let running = app.start().await.unwrap();
    let inside = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'users' AND state LIKE 'idle in transaction%'";
    for _ in 0..60 {
        db.send_all((0..6).map(|n| Outgoing::new("q", &n))).await;
        db.drained().await;
        eventually("no session is inside a transaction", async || db.int(inside).await == 0).await;
    }
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 360);
    // Through each of its connections, seen by others at once.
    for n in 0..3 {
        let insert = sqlx::query("INSERT INTO seen (n) VALUES ($1)").bind(n);
        let mut connections = Vec::new();
        for _ in 0..3 {
            connections.push(pool.acquire().await.unwrap());
        }
        insert.execute(&mut *connections[usize::try_from(n).unwrap()]).await.unwrap();
        assert_eq!(db.int("SELECT count(*) FROM seen").await, i64::from(n) + 1);
    }
}

async fn a_migration_that_is_given_up_keeps_no_lock_and_can_be_made_again(db: &Db) {
    let mut given_up = 0;
    for n in 0..25_u32 {
        let names = TableNames::new(format!("given_up_{n}")).unwrap();
        let limit = Duration::from_micros(200) * n * n;
        let migrating = migrate_tables(db.pg(), &names);
        given_up += usize::from(timeout(limit, migrating).await.is_err());
        soon("it is made", migrate_tables(db.pg(), &names)).await.unwrap();
        validate_schema(db.pg(), &names, false).await.unwrap();
    }
    assert!(given_up > 5, "{given_up} were given up");
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually("no lock is left", async || db.int(locks).await == 0).await;
}
