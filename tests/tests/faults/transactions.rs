//! Transactions that are begun and given up at once. sqlx 0.9.0 leaves a session inside
//! its transaction when `begin` is cancelled, and what the next one writes is seen by
//! nobody.

use std::time::Duration;

use outbox::schema::{migrate_tables, validate_schema};
use outbox::{
    AckPolicy, App, Context, FromContext, HandlerError, Lends, Outgoing, Subscriber, TableNames, Tx,
};
use outbox_tests::db::{Db, Pool};
use outbox_tests::wait::{eventually, soon};
use outbox_tests::{on_both, on_postgres};
use sqlx::Executor;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use tokio::time::{Instant, timeout};

on_both!(a_storm_of_cancelled_begins_leaves_the_users_pool_as_it_was);
on_postgres!(a_migration_that_is_given_up_keeps_no_lock_and_can_be_made_again);

/// Begins that are given up by one handler at a time, and by twenty, again and again: the
/// next begin on a connection puts right what the last one left.
const STORMS: [(&str, usize, usize); 2] = [("few", 1, 40), ("many", 20, 84)];
const ROUNDS: usize = 25;

/// So many turns of the runtime later.
async fn turns(turns: i64) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

/// Dropped before, while or after its transaction begins.
async fn begins<DB: Lends>(ctx: Context) -> Result<(), HandlerError> {
    let begin = async {
        let _tx = Tx::<DB>::from_context(&ctx).await?;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        begun = begin => begun,
        () = turns(ctx.id() * 7919 % 400) => Err(HandlerError::new("given up", "as told")),
    }
}

/// Needs a transaction.
async fn takes<DB: Lends>(ctx: Context) -> Result<(), HandlerError> {
    Tx::<DB>::from_context(&ctx).await.map(drop)
}

/// Of one connection: what is left of one begin is in the way of the next.
fn pool_of_one(db: &Db) -> Pool {
    match &db.pool {
        Pool::Postgres(pool) => {
            let options = (*pool.connect_options()).clone().application_name("users");
            Pool::Postgres(PgPoolOptions::new().max_connections(1).connect_lazy_with(options))
        }
        Pool::Sqlite(pool) => {
            let options = (*pool.connect_options()).clone();
            Pool::Sqlite(SqlitePoolOptions::new().max_connections(1).connect_lazy_with(options))
        }
    }
}

/// Its sessions that idle in a transaction (PostgreSQL).
async fn inside(db: &Db) -> i64 {
    let inside = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'users' AND state LIKE 'idle in transaction%'";
    if db.is_postgres() { db.int(inside).await } else { 0 }
}

async fn a_storm_of_cancelled_begins_leaves_the_users_pool_as_it_was(db: &Db) {
    db.exec("CREATE TABLE seen (n bigint)").await;
    let pool = pool_of_one(db);
    let app = match &pool {
        Pool::Postgres(pool) => App::postgres(pool.clone()),
        Pool::Sqlite(pool) => App::sqlite(pool.clone()),
    };
    let storms = STORMS.map(|(queue, workers, _)| {
        let one = if db.is_postgres() {
            Subscriber::new(queue, queue, begins::<sqlx::Postgres>)
        } else {
            Subscriber::new(queue, queue, begins::<sqlx::Sqlite>)
        };
        one.ack(AckPolicy::RejectOnError).max_workers(workers).fetch_batch(100)
    });
    let last = if db.is_postgres() {
        Subscriber::new("last", "last", takes::<sqlx::Postgres>)
    } else {
        Subscriber::new("last", "last", takes::<sqlx::Sqlite>)
    };
    let all = storms.into_iter().chain([last]);
    let running = app.names(db.names.clone()).only(all).start().await.unwrap();
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        for (queue, _, times) in STORMS {
            db.send_all((0..times).map(|n| Outgoing::new(queue, &n))).await;
            db.drained().await;
        }
        eventually("no session is inside a transaction", async || inside(db).await == 0).await;
    }
    println!("given up {} times in {:?}", db.letters().await, begun.elapsed());
    let letters = ROUNDS * STORMS.iter().map(|(.., times)| times).sum::<usize>();
    let given_up = "SELECT count(*) FROM outbox_dlq WHERE error_kind = 'given up'";
    assert_eq!(db.int(given_up).await, i64::try_from(letters).unwrap());
    // Behind the begins that nobody waits for any more.
    for n in 1..=3 {
        let insert = async {
            match &pool {
                Pool::Postgres(pool) => pool.execute("INSERT INTO seen VALUES (1)").await.map(drop),
                Pool::Sqlite(pool) => pool.execute("INSERT INTO seen VALUES (1)").await.map(drop),
            }
        };
        soon("its connection is free", insert).await.unwrap();
        assert_eq!(db.int("SELECT count(*) FROM seen").await, n, "it is seen at once");
    }
    assert_eq!(inside(db).await, 0, "nothing is left of it");
    db.publish("last", 1).await;
    db.drained().await;
    running.stop().await.unwrap();
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
