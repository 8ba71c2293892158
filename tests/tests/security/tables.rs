//! The same 500 names for tables, dead-letter tables and schemas: refused when they are
//! given, or good for everything that is done with tables.

use outbox::dlq::{Filter, Replay};
use outbox::ops::{Operator, PeekOptions, SampleOptions, WhyOptions};
use outbox::retry::NoRetry;
use outbox::{Context, Outgoing, Subscriber, TableNames};
use outbox_tests::db::{Db, Pool};
use outbox_tests::hostile::names;
use outbox_tests::roles::{grant, roles};
use outbox_tests::wait::eventually;
use sqlx::{AssertSqlSafe, Executor as _};

/// What the databases keep of a name, less what is added to it.
fn fits(name: &str, most: usize) -> bool {
    let kept = name.to_lowercase().starts_with("sqlite_");
    (1..=most).contains(&name.len()) && !name.contains(['\0', '.']) && !kept
}

/// A case: three names, each replaced by a harmless one if it is refused.
struct Case {
    names: TableNames,
    /// Which of table, dead-letter table and schema are the hostile ones.
    hostile: [bool; 3],
}

impl Case {
    fn all() -> Vec<Self> {
        let names = names();
        let at = |n: usize| &*names[n % names.len()];
        (0..names.len()).map(|n| Self::of(n, at(n), at(n + 1), at(n + 2))).collect()
    }

    fn of(number: usize, table: &str, dlq: &str, schema: &str) -> Self {
        let (first, named) = match TableNames::new(table) {
            Ok(named) => (true, named),
            Err(_) => (false, TableNames::new(format!("table {number}")).unwrap()),
        };
        assert_eq!(first, fits(table, 42), "{table:?}");
        let (second, named) = match named.clone().with_dlq(dlq) {
            Ok(named) => (true, named),
            Err(_) => (false, named.with_dlq(format!("letters {number}")).unwrap()),
        };
        assert_eq!(second, fits(dlq, 46), "{dlq:?} beside {table:?}");
        let taken = named.clone().in_schema(schema);
        let good = (1..=63).contains(&schema.len()) && !schema.contains('\0');
        assert_eq!(taken.is_ok(), good, "{schema:?}");
        // PostgreSQL keeps these for itself: nobody can make one.
        let third = good && !schema.starts_with("pg_");
        let own = format!("schema {number}");
        let named = if third { taken } else { named.in_schema(own) }.unwrap();
        Self { names: named, hostile: [first, second, third] }
    }
}

/// Everything that is done with tables, once.
async fn everything_works(db: &Db) {
    let operator = match &db.pool {
        Pool::Postgres(pool) => Operator::postgres(pool.clone(), db.names.clone()),
        Pool::Sqlite(pool) => Operator::sqlite(pool.clone(), db.names.clone()),
    };
    operator.migrate().await.unwrap();
    operator.migrate().await.unwrap();
    operator.check(true).await.unwrap();
    operator.pause(&["q"], None).await.unwrap();
    let message = Outgoing::new("q", &7).timer_id("t").header("a", "b");
    let id = operator.publish(message).await.unwrap().id().unwrap();
    assert_eq!(operator.queues(10).await.unwrap().len(), 1);
    let peeked = operator.peek("q", &PeekOptions::default()).await.unwrap();
    assert_eq!(peeked[0].id, id);
    assert!(operator.why(id, &WhyOptions::default()).await.unwrap().row.is_some());
    operator.resume(&["q"]).await.unwrap();

    let once = |context: Context| async move {
        if context.headers().replays() > 0 { Ok(()) } else { Err("not yet") }
    };
    let subscriber = Subscriber::new("hostile", "q", once).retry(NoRetry);
    let running = db.app().only([subscriber.max_workers(1)]).start().await.unwrap();
    let letters = operator.dead_letters();
    eventually("it is a dead letter", async || letters.count(&Filter::new()).await.unwrap() == 1)
        .await;
    if db.is_postgres() {
        letters.partition(1).await.unwrap();
        assert!(letters.partitions().await.unwrap().iter().any(|month| month.letters == 1));
        let grants = operator.grants(&roles()).unwrap();
        db.pg().execute(AssertSqlSafe(grants)).await.unwrap();
    }
    assert_eq!(letters.groups(&Filter::new(), 10).await.unwrap().letters, 1);
    letters.replay(&Filter::new(), &Replay::new()).await.unwrap();
    eventually("it is handled", async || {
        let sample = operator.sample(&SampleOptions::default()).await.unwrap();
        sample.queues.iter().all(|queue| queue.waiting + queue.leased == 0)
    })
    .await;
    assert_eq!(letters.purge(&Filter::new()).await.unwrap(), 1, "it is resolved");
    running.stop().await.unwrap();
}

/// The cases, four at once.
async fn each(run: impl AsyncFn(Case)) {
    let lane = async |lane: usize| {
        for case in Case::all().into_iter().skip(lane).step_by(4) {
            run(case).await;
        }
    };
    tokio::join!(lane(0), lane(1), lane(2), lane(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgresql() {
    let Some(db) = Db::postgres().await else { return };
    db.exec("CREATE TABLE biz AS SELECT 7::bigint AS n").await;
    grant(db.pg(), &db.names, &roles()).await;
    let tables = "SELECT relname::text FROM pg_class \
        WHERE relnamespace = 'public'::regnamespace ORDER BY relname";
    let before = db.texts(tables).await;
    each(async |case| {
        let schema = case.names.schema().unwrap().replace('"', "\"\"");
        db.exec(format!("CREATE SCHEMA \"{schema}\"")).await;
        everything_works(&db.named(case.names)).await;
        db.exec(format!("DROP SCHEMA \"{schema}\" CASCADE")).await;
    })
    .await;
    assert_eq!(db.texts(tables).await, before, "nothing was made or dropped elsewhere");
    assert_eq!(db.int("SELECT n FROM biz").await, 7);
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite() {
    each(async |case| {
        let Some(db) = Db::bare_sqlite().await else { return };
        db.exec("CREATE TABLE biz AS SELECT 7 AS n").await;
        let names = TableNames::new(case.names.table()).unwrap();
        let names = names.with_dlq(case.names.dlq().unwrap()).unwrap();
        everything_works(&db.named(names)).await;
        assert_eq!(db.int("SELECT n FROM biz").await, 7);
        db.close().await;
    })
    .await;
}

/// Otherwise the test above would test nothing.
#[test]
fn most_names_are_taken_somewhere() {
    let taken = |n: usize| Case::all().iter().filter(|case| case.hostile[n]).count();
    assert!((0..3).all(|n| taken(n) > 200), "{:?}", [taken(0), taken(1), taken(2)]);
}

/// Two tables, or what is beside them, under one name: one would be missing.
#[test]
fn a_name_for_two_tables() {
    let both = |table: &str, dlq: &str| TableNames::new(table).unwrap().with_dlq(dlq);
    for (table, dlq) in [
        ("a", "a"),
        ("a", "A"),
        ("a", "a_paused"),
        ("a", "a_due_idx"),
        ("a", "a_timer_id_uq"),
        ("a", "_a_migrations"),
        ("b_status_idx", "b"),
        ("b_pkey", "b"),
        ("_b_migrations", "b"),
    ] {
        let refused = both(table, dlq).unwrap_err().to_string();
        assert!(refused.starts_with("the dead-letter table name"), "{table}, {dlq}: {refused}");
    }
    assert!(both("a", "a_dlq").is_ok() && both("a", "b").is_ok());
    assert!(TableNames::new("SQLite_a").unwrap_err().to_string().contains("keeps for itself"));
}
