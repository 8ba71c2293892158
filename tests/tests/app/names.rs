//! Any table names, any search path, any default isolation.

use outbox::{App, Context, Error, Outgoing, Subscriber, TableNames};
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::probe::{Run, free, with_result};
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_both, on_postgres};
use sqlx::Executor as _;
use sqlx::postgres::{PgPool, PgPoolOptions};

use super::*;

on_both!(names_that_need_quotes_work_end_to_end);

on_postgres!(
    a_schema_works_without_a_search_path,
    a_pool_that_means_another_table_than_the_engine_does_not_start,
    a_busy_run_on_a_serializable_database_loses_nothing,
);

/// Fails once where `n` is odd, and for good where it ends in 5.
fn result(run: &Run) -> Result<(), String> {
    let fails = run.n % 10 == 5 || (run.n % 2 == 1 && run.attempts == 0);
    if fails { Err("odd".into()) } else { Ok(()) }
}

fn retry() -> outbox::retry::Constant {
    outbox::retry::Constant::new(Duration::from_millis(1)).max_attempts(2)
}

async fn names_that_need_quotes_work_end_to_end(db: &Db) {
    let names = TableNames::new("select \"Me\" 'é'; --").unwrap().with_dlq("Dead Ones").unwrap();
    let named = db.named(names);
    named.migrate().await;
    let (subscriber, probe) = with_result("it", "q", result);
    probe.let_end(1000);
    let running = named.app().only([subscriber.retry(retry())]).start().await.unwrap();
    named.send_all((0..10).map(|n| Outgoing::new("q", &n))).await;
    let timer = Outgoing::new("q", &20).timer_id("t").delay(Duration::from_millis(5));
    named.send(timer).await;
    let rows = "SELECT count(*) FROM \"select \"\"Me\"\" 'é'; --\"";
    eventually("all are handled", async || db.int(rows).await == 0).await;
    let letters = "SELECT count(*) FROM \"Dead Ones\"";
    assert_eq!((db.int(letters).await, db.letters().await), (1, 0));
    assert_eq!(probe.finished(), 11 + 5);
    running.stop().await.unwrap();
}

/// The same database as a new connection meets it after `set`.
async fn set(db: &Db, settings: &[&str]) -> PgPool {
    let options = (*db.pg().connect_options()).clone();
    let name = options.get_database().unwrap();
    for setting in settings {
        db.exec(format!("ALTER DATABASE {name} SET {setting}")).await;
    }
    PgPoolOptions::new().max_connections(8).connect_with(options).await.unwrap()
}

async fn a_schema_works_without_a_search_path(db: &Db) {
    let pool = set(db, &["search_path = ''"]).await;
    let names = db.names.clone().in_schema("Shop \"1\"").unwrap();
    sqlx::query("CREATE SCHEMA \"Shop \"\"1\"\"\"").execute(&pool).await.unwrap();
    outbox::schema::migrate_tables(&pool, &names).await.unwrap();
    outbox::schema::validate_schema(&pool, &names, true).await.unwrap();
    let (subscriber, probe) = with_result("it", "q", result);
    probe.let_end(1000);
    let app = App::postgres(pool.clone()).names(names).only([subscriber.retry(retry())]);
    let running = app.start().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    for n in 0..10 {
        app.publisher().publish(&mut tx, "q", &n).await.unwrap();
    }
    tx.commit().await.unwrap();
    let left = "SELECT count(*) FROM \"Shop \"\"1\"\"\".outbox";
    eventually("all are handled", async || db.int(left).await == 0).await;
    assert_eq!(db.int("SELECT count(*) FROM \"Shop \"\"1\"\"\".outbox_dlq").await, 1);
    assert_eq!((probe.finished(), db.int("SELECT count(*) FROM public.outbox").await), (15, 0));
    running.stop().await.unwrap();
    pool.close().await;
}

async fn a_pool_that_means_another_table_than_the_engine_does_not_start(db: &Db) {
    db.exec("CREATE SCHEMA tenant").await;
    let pool = PgPoolOptions::new().after_connect(|connection, _| {
        Box::pin(async move { connection.execute("SET search_path = tenant").await.map(drop) })
    });
    let pool = pool.connect_with((*db.pg().connect_options()).clone()).await.unwrap();
    let start = async |names: &TableNames| {
        let subscriber = Subscriber::new("it", "q", |_: Context| async {});
        App::postgres(pool.clone()).names(names.clone()).only([subscriber]).start().await
    };
    let reason = async || {
        let refused = start(&db.names).await.err();
        let Some(Error::Launch(reasons)) = refused else { panic!("{refused:?}") };
        let [reason] = &reasons[..] else { panic!("{reasons:#?}") };
        reason.clone()
    };
    let refused = reason().await;
    assert!(refused.contains("is not there for your pool"), "{refused}");
    outbox::schema::migrate_tables(&pool, &db.names).await.unwrap();
    let refused = reason().await;
    assert!(
        refused.contains("schema tenant for") && refused.contains("schema public"),
        "{refused}"
    );
    let named = db.names.clone().in_schema("tenant").unwrap();
    start(&named).await.unwrap().stop().await.unwrap();
    pool.close().await;
}

async fn a_busy_run_on_a_serializable_database_loses_nothing(db: &Db) {
    let pool = set(db, &["default_transaction_isolation = serializable"]).await;
    let app = App::postgres(pool.clone()).names(db.names.clone());
    let (mut running, mut probes) = (Vec::new(), Vec::new());
    capture::start();
    let names: [&'static str; 2] = [unique("one").leak(), unique("two").leak()];
    for name in names {
        let (subscriber, probe) = with_result(name, "q", result);
        let (other, seen) = free(name, "other");
        probe.let_end(1000);
        let app = app.clone().only([subscriber.retry(retry()), other]);
        running.push(app.start().await.unwrap());
        probes.extend([probe, seen]);
    }
    let publish = async |from: i64| {
        for n in from..from + 50 {
            let mut tx = pool.begin().await.unwrap();
            for queue in ["q", "other"] {
                app.publisher().publish(&mut tx, queue, &n).await.unwrap();
            }
            tx.commit().await.unwrap();
        }
    };
    tokio::join!(publish(0), publish(50), publish(100), publish(150));
    db.drained().await;
    let mut handled: Vec<i64> = Vec::new();
    for probe in &probes {
        let runs = probe.more().await;
        let last = runs.iter().filter(|run| run.context.queue() == "other" || result(run).is_ok());
        handled.extend(last.map(|run| run.n));
    }
    handled.sort_unstable();
    let expected = (0..200).flat_map(|n| vec![n; if n % 10 == 5 { 1 } else { 2 }]);
    assert_eq!(handled, expected.collect::<Vec<_>>(), "each was handled, and once");
    assert_eq!(db.letters().await, 20);
    let complaints = capture::count(|line| {
        line.get("error").is_some() && line.get("subscriber").is_some_and(|it| names.contains(&it))
    });
    assert_eq!(complaints, 0, "no claim was refused");
    for one in running {
        one.ping().await.unwrap();
        one.stop().await.unwrap();
    }
    pool.close().await;
}
