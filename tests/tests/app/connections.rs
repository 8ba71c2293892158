//! What an app asks of the server: few connections, and no more rights than to
//! read and write two tables.

use outbox::{App, Context, FromContext, HandlerError, Outgoing, Subscriber, Tx};
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::{free, with_result};
use outbox_tests::proxy::Proxy;
use outbox_tests::wait::eventually;
use outbox_tests::wire::Wire;
use sqlx::postgres::PgPoolOptions;

use super::*;

on_postgres!(
    forty_subscribers_use_at_most_five_connections_and_close_them,
    a_role_that_may_only_read_and_write_the_tables_is_enough,
    a_server_that_cannot_watch_its_clients_lends_transactions_all_the_same,
    a_server_that_knows_no_watch_of_its_clients_lends_transactions_all_the_same,
);

async fn forty_subscribers_use_at_most_five_connections_and_close_them(db: &Db) {
    let all: Vec<_> = (0..40).map(|n| free("it", &format!("q{n}"))).collect();
    let subscribers = all.iter().map(|(subscriber, _)| subscriber.clone());
    let wire = Wire::of(db).await;
    let pool = PgPoolOptions::new().connect_lazy_with(wire.options.clone());
    let app = App::postgres(pool).names(db.names.clone()).only(subscribers);
    let running = app.start().await.unwrap();
    // A start has one more, by which it looks for the server.
    wire.rests().await;
    wire.begin();
    for round in 0..10 {
        let messages = (0..400).map(|n| Outgoing::new(format!("q{}", n % 40), &round));
        db.send_all(messages).await;
    }
    db.drained().await;
    let most = wire.counts().most;
    assert!((2..=5).contains(&most), "{most} connections");
    running.stop().await.unwrap();
    eventually("all are closed", async || db.connections().await == 0).await;
    let handled: usize = all.iter().map(|(_, probe)| probe.finished()).sum();
    assert_eq!(handled, 4000);
}

async fn a_role_that_may_only_read_and_write_the_tables_is_enough(db: &Db) {
    let role = unique("outbox_role");
    let rights = "SELECT, INSERT, UPDATE, DELETE";
    db.exec(format!("CREATE ROLE {role}")).await;
    db.exec(format!("GRANT {rights} ON outbox, outbox_dlq TO {role}")).await;
    let name = db.texts("SELECT quote_ident(current_database())").await.remove(0);
    for right in ["CREATE ON SCHEMA public", &format!("TEMPORARY ON DATABASE {name}")] {
        db.exec(format!("REVOKE {right} FROM PUBLIC")).await;
    }
    let options = (*db.pg().connect_options()).clone().options([("role", &role)]);
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    for table in ["CREATE TABLE forbidden ()", "CREATE TEMP TABLE forbidden ()"] {
        sqlx::query(table).execute(&pool).await.unwrap_err();
    }

    let (fails, probe) =
        with_result("it", "q", |run| if run.n < 3 { Ok(()) } else { Err("no".into()) });
    let (asks, letter) = free("other", "other");
    let fails = fails.retry(outbox::retry::Constant::new(Duration::from_millis(1)).max_attempts(2));
    probe.let_end(100);
    let app = App::postgres(pool.clone()).names(db.names.clone()).only([fails, asks]);
    // As before there were pauses: told, and no reason not to start.
    let told = outbox::schema::validate_schema(&pool, &db.names, false).await.unwrap_err();
    let grant = format!("GRANT SELECT ON \"outbox_paused\" TO {role};");
    assert!(told.to_string().ends_with(&grant), "{told}");
    let running = app.start().await.unwrap();
    let publisher = app.publisher();
    let mut tx = pool.begin().await.unwrap();
    for n in 0..4 {
        publisher.publish(&mut tx, "q", &n).await.unwrap();
    }
    let timer = publisher.message("other", &7).timer_id("t").delay(Duration::from_millis(1));
    timer.publish(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    letter.start().await;
    db.drained().await;
    assert_eq!((probe.finished(), db.letters().await), (5, 1));
    running.stop().await.unwrap();
    db.exec(format!("DROP OWNED BY {role}")).await;
    db.exec(format!("DROP ROLE {role}")).await;
}

async fn books(ctx: Context) -> Result<(), HandlerError> {
    let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
    sqlx::query("INSERT INTO done VALUES (1)").execute(&mut *tx).await?;
    Ok(())
}

/// As on macOS and Windows, and before PostgreSQL 14: it refuses a setting behind the BEGIN, in
/// the same message.
async fn a_server_that_cannot_watch_its_clients_lends_transactions_all_the_same(db: &Db) {
    lends_though_it_reads(db, "check_interval = 'no'").await;
}

async fn a_server_that_knows_no_watch_of_its_clients_lends_transactions_all_the_same(db: &Db) {
    lends_though_it_reads(db, "check_internal = '2s'").await;
}

async fn lends_though_it_reads(db: &Db, instead: &'static str) {
    db.exec("CREATE TABLE done (n bigint)").await;
    let proxy = Proxy::before(db).await;
    proxy.rewrite("check_interval = '2s'", instead);
    let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(proxy.options(db));
    let booking = Subscriber::new("books", "q", books).requires::<Tx<sqlx::Postgres>>();
    let app = App::postgres(pool.clone()).names(db.names.clone()).only([booking.max_workers(4)]);
    let stats = app.stats();
    db.send_all((0..40).map(|n| Outgoing::new("q", &n))).await;
    let running = app.start().await.unwrap();
    db.drained().await;
    for _ in 0..8 {
        pool.begin().await.unwrap().commit().await.unwrap();
    }
    running.stop().await.unwrap();
    let [one] = &stats.subscribers()[..] else { panic!("there is one") };
    assert_eq!((one.acked, one.snoozed, db.int("SELECT count(*) FROM done").await), (40, 0, 40));
}
