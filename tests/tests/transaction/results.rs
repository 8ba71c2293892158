//! An ack commits everything; whatever is no ack leaves nothing behind.

use outbox::retry::{Constant, NoRetry};
use outbox::{
    AckPolicy, App, Context, Error, FromContext, HandlerError, PublishError, Subscriber, Tx,
};
use outbox_tests::db::Db;
use outbox_tests::roles::of_engine;
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};
use sqlx::Executor;
use sqlx::postgres::PgPoolOptions;

use super::handlers::{Kept, Then, subscriber};
use super::*;

on_both!(
    an_ack_commits_what_was_written_and_published,
    an_error_rolls_everything_back_and_is_retried,
    a_panic_rolls_everything_back,
    a_timeout_rolls_everything_back,
    a_dead_letter_is_written_without_what_the_handler_wrote,
    an_ack_that_was_said_commits,
    an_ack_that_was_said_does_not_count_over_an_error,
    an_ack_that_was_said_does_not_count_over_a_panic,
    an_ack_that_was_said_does_not_count_over_a_timeout,
    a_second_transaction_is_refused,
    a_transaction_under_ack_first_is_refused_at_the_start,
    a_transaction_of_another_database_is_refused_at_the_start,
    a_commit_that_is_refused_is_a_failure_and_nothing_is_left,
    many_at_once_all_commit,
);

outbox_tests::cases!(sqlite in sqlite_only: a_transaction_that_sqlite_has_ended_acks_nothing);

on_postgres!(
    a_transaction_that_is_kept_fails_the_delivery,
    a_statement_whose_error_the_handler_keeps_to_itself_fails_it,
    a_transaction_that_the_handler_made_read_only_fails_it,
    a_search_path_of_the_handler_s_leads_no_ack_away_from_a_schema_by_name,
    a_transaction_that_is_left_idle_for_longer_than_the_server_allows_is_the_handler_s_failure,
    a_commit_that_takes_longer_than_the_server_allows_is_the_handler_s_failure,
    a_publish_in_a_transaction_that_has_failed_is_not_to_be_repeated,
    no_session_is_left_inside_a_transaction,
);

async fn run(db: &Db, subscriber: Subscriber) {
    with_domain(db).await;
    let running = db.app().only([subscriber]).start().await.unwrap();
    db.publish("q", 7).await;
    eventually("it is settled", async || {
        db.int("SELECT count(*) FROM outbox WHERE queue = 'q' AND attempts_count = 0").await == 0
    })
    .await;
    running.stop().await.unwrap();
}

async fn an_ack_commits_what_was_written_and_published(db: &Db) {
    run(db, subscriber(db, Then::Return)).await;
    assert_eq!((done(db).await, receipts(db).await, db.rows().await), (1, 1, 1));
}

/// Nothing was written, and the row waits for its next attempt.
async fn is_undone(db: &Db) {
    assert_eq!((done(db).await, receipts(db).await, db.rows().await), (0, 0, 1));
    assert_eq!(db.int("SELECT attempts_count FROM outbox").await, 1);
    assert_eq!(db.leased().await, 0);
}

fn later(subscriber: Subscriber) -> Subscriber {
    subscriber.retry(Constant::new(600 * SECOND))
}

async fn an_error_rolls_everything_back_and_is_retried(db: &Db) {
    run(db, later(subscriber(db, Then::Fail))).await;
    is_undone(db).await;
}

async fn a_panic_rolls_everything_back(db: &Db) {
    run(db, later(subscriber(db, Then::Panic))).await;
    is_undone(db).await;
}

async fn a_timeout_rolls_everything_back(db: &Db) {
    run(db, later(subscriber(db, Then::Sleep)).timeout(SECOND / 5)).await;
    is_undone(db).await;
}

async fn a_dead_letter_is_written_without_what_the_handler_wrote(db: &Db) {
    run(db, subscriber(db, Then::Fail).retry(NoRetry)).await;
    assert_eq!((done(db).await, db.rows().await, db.letters().await), (0, 0, 1));
}

/// Says that it is done before it does anything.
fn hasty(db: &Db, then: Then) -> Subscriber {
    later(subscriber(db, then)).ack(AckPolicy::Manual).layer(|ctx, next| async move {
        ctx.ack();
        next.run(ctx).await
    })
}

async fn an_ack_that_was_said_commits(db: &Db) {
    run(db, hasty(db, Then::Return)).await;
    assert_eq!((done(db).await, receipts(db).await, db.rows().await), (1, 1, 1));
}

async fn an_ack_that_was_said_does_not_count_over_an_error(db: &Db) {
    run(db, hasty(db, Then::Fail)).await;
    is_undone(db).await;
}

async fn an_ack_that_was_said_does_not_count_over_a_panic(db: &Db) {
    run(db, hasty(db, Then::Panic)).await;
    is_undone(db).await;
}

async fn an_ack_that_was_said_does_not_count_over_a_timeout(db: &Db) {
    run(db, hasty(db, Then::Sleep).timeout(SECOND / 5)).await;
    is_undone(db).await;
}

async fn kind(db: &Db) -> Vec<String> {
    db.texts("SELECT error_kind FROM outbox_dlq").await
}

async fn a_transaction_that_is_kept_fails_the_delivery(db: &Db) {
    let kept = Kept::default();
    run(db, subscriber(db, Then::Keep(kept.clone())).retry(NoRetry)).await;
    kept.lock().unwrap().clear();
    assert_eq!((done(db).await, receipts(db).await, db.letters().await), (0, 0, 1));
    assert_eq!(kind(db).await, ["transaction"]);
}

async fn a_second_transaction_is_refused(db: &Db) {
    run(db, subscriber(db, Then::Twice).retry(NoRetry)).await;
    assert_eq!((done(db).await, receipts(db).await, db.letters().await), (0, 0, 1));
    let why = db.texts("SELECT last_exception FROM outbox_dlq").await;
    assert!(why[0].contains("takes one `Tx`"), "{why:?}");
}

async fn a_transaction_under_ack_first_is_refused_at_the_start(db: &Db) {
    db.publish("q", 7).await;
    let app = db.app().only([subscriber(db, Then::Return).ack(AckPolicy::AckFirst)]);
    let Err(Error::Launch(reasons)) = app.start().await else { panic!("it started") };
    assert!(reasons[0].contains("`book`") && reasons[0].contains("`AckFirst`"), "{reasons:?}");
    assert_eq!(db.rows().await, 1);
}

async fn a_transaction_of_another_database_is_refused_at_the_start(db: &Db) {
    let nothing = Subscriber::new("book", "q", |_| async {});
    let (wrong, wanted) = if db.is_postgres() {
        (nothing.requires::<Tx<sqlx::Sqlite>>(), "Tx<sqlx::Sqlite>")
    } else {
        (nothing.requires::<Tx<sqlx::Postgres>>(), "Tx<sqlx::Postgres>")
    };
    let Err(Error::Launch(reasons)) = db.app().only([wrong]).start().await else {
        panic!("it started")
    };
    assert!(reasons[0].contains(wanted) && reasons[0].contains("are lent"), "{reasons:?}");
}

async fn many_at_once_all_commit(db: &Db) {
    with_domain(db).await;
    db.send_all((0..200_i64).map(|n| outbox::Outgoing::new("q", &n))).await;
    let app = db.app().only([subscriber(db, Then::Return).retry(Constant::new(SECOND / 10))]);
    let running = app.start().await.unwrap();
    eventually("all are handled", async || done(db).await == 200).await;
    running.stop().await.unwrap();
    assert_eq!(db.int("SELECT count(DISTINCT n) FROM done").await, 200);
    assert_eq!((receipts(db).await, db.rows().await), (200, 200));
}

async fn a_commit_that_is_refused_is_a_failure_and_nothing_is_left(db: &Db) {
    with_domain(db).await;
    if db.is_postgres() {
        db.exec("ALTER TABLE done ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED").await;
        db.exec("INSERT INTO done VALUES (7)").await;
    } else {
        db.exec("CREATE TABLE known (n PRIMARY KEY)").await;
        db.exec("INSERT INTO known VALUES (8)").await;
        db.exec("DROP TABLE done").await;
        let known = "REFERENCES known DEFERRABLE INITIALLY DEFERRED";
        db.exec(format!("CREATE TABLE done (n bigint NOT NULL {known})")).await;
        db.exec("INSERT INTO done VALUES (8)").await;
    }
    let app = db.app().only([subscriber(db, Then::Return).retry(NoRetry)]);
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    eventually("it is dead", async || db.letters().await == 1).await;
    running.stop().await.unwrap();
    assert_eq!((done(db).await, db.rows().await), (1, 0));
    assert_eq!(kind(db).await, ["transaction"]);
}

/// Otherwise it would come back for ever.
async fn a_statement_whose_error_the_handler_keeps_to_itself_fails_it(db: &Db) {
    let careless = Subscriber::new("careless", "q", |ctx: Context| async move {
        let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
        assert!(tx.execute("SELECT 1 / 0").await.is_err());
        Ok::<_, HandlerError>(())
    });
    run(db, careless.retry(NoRetry)).await;
    assert_eq!((db.rows().await, db.letters().await), (0, 1));
    assert_eq!(kind(db).await, ["transaction"]);
}

/// It would be put off without end.
async fn a_transaction_that_the_handler_made_read_only_fails_it(db: &Db) {
    let report = Subscriber::new("report", "q", |ctx: Context| async move {
        let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
        tx.execute("SET TRANSACTION READ ONLY").await.unwrap();
        Ok::<_, HandlerError>(())
    });
    run(db, report.retry(NoRetry)).await;
    assert_eq!((db.rows().await, db.letters().await), (0, 1));
    assert_eq!(kind(db).await, ["transaction"]);
}

async fn a_search_path_of_the_handler_s_leads_no_ack_away_from_a_schema_by_name(db: &Db) {
    db.exec("CREATE SCHEMA tenant; CREATE TABLE tenant.outbox (LIKE public.outbox INCLUDING ALL)")
        .await;
    let named = db.named(db.names.clone().in_schema("public").unwrap());
    let moved = Subscriber::new("moved", "q", |ctx: Context| async move {
        let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
        tx.execute("SET LOCAL search_path TO tenant").await.unwrap();
        ctx.publisher().publish(&mut tx, "next", &1).await?;
        Ok::<_, HandlerError>(())
    });
    let app = named.app().only([moved]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    eventually("it is acked", async || stats.subscribers()[0].acked == 1).await;
    running.stop().await.unwrap();
    assert_eq!(db.texts("SELECT queue FROM public.outbox").await, ["next"]);
}

/// It would be put off without end.
async fn a_transaction_that_is_left_idle_for_longer_than_the_server_allows_is_the_handler_s_failure(
    db: &Db,
) {
    let idle = Subscriber::new("idle", "q", |ctx: Context| async move {
        let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
        tx.execute("SET LOCAL idle_in_transaction_session_timeout = '100ms'").await.unwrap();
        tokio::time::sleep(SECOND).await;
        Ok::<_, HandlerError>(())
    });
    run(db, idle.retry(NoRetry)).await;
    assert_eq!((db.rows().await, db.letters().await), (0, 1));
    assert_eq!(kind(db).await, ["transaction"]);
}

/// As with `transaction_timeout`, which not every server has. It would be put off without end.
async fn a_commit_that_takes_longer_than_the_server_allows_is_the_handler_s_failure(db: &Db) {
    let refuse = |code| {
        format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE SQLSTATE '{code}'; END $$"
        )
    };
    db.exec(refuse("00000")).await;
    db.exec(
        "CREATE TABLE checked (n bigint);
         CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON checked
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .await;
    let leaves = |ctx: Context| async move {
        let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
        tx.execute("INSERT INTO checked VALUES (7)").await.unwrap();
        Ok::<_, HandlerError>(())
    };
    // Its time is over; a deferred constraint says that something is not ready.
    for (code, letters) in [("25P04", 1), ("55000", 2)] {
        db.exec(refuse(code)).await;
        let leaves = Subscriber::new("leaves", "q", leaves).retry(NoRetry);
        let running = db.app().only([leaves]).start().await.unwrap();
        db.publish("q", 7).await;
        eventually("it is a letter", async || db.letters().await == letters).await;
        running.stop().await.unwrap();
        assert_eq!(db.rows().await, 0);
    }
    assert_eq!(kind(db).await, ["transaction"; 2]);
}

/// Whoever begins anew on `transient` would do so without end.
async fn a_publish_in_a_transaction_that_has_failed_is_not_to_be_repeated(db: &Db) {
    let mut tx = db.pg().begin().await.unwrap();
    assert!(tx.execute("SELECT 1 / 0").await.is_err());
    let Err(PublishError::Store(failed)) = outbox::publish(&mut tx, "q", &7).await else {
        panic!("it was published")
    };
    assert!(!failed.transient, "{failed}");
}

/// For such a conflict SQLite ends the whole transaction, which the handler does not see.
async fn a_transaction_that_sqlite_has_ended_acks_nothing(db: &Db) {
    db.exec("CREATE TABLE once (n INTEGER UNIQUE ON CONFLICT ROLLBACK)").await;
    let careless = Subscriber::new("careless", "q", |ctx: Context| async move {
        let mut tx = Tx::<sqlx::Sqlite>::from_context(&ctx).await?;
        tx.execute("INSERT INTO once VALUES (7)").await.unwrap();
        assert!(tx.execute("INSERT INTO once VALUES (7)").await.is_err());
        ctx.publisher().collect(outbox::Outgoing::new("receipts", &7)).unwrap();
        Ok::<_, HandlerError>(())
    });
    run(db, careless.retry(NoRetry)).await;
    assert_eq!((db.rows().await, db.letters().await), (0, 1));
    assert_eq!(db.int("SELECT count(*) FROM once").await, 0);
    assert_eq!(kind(db).await, ["transaction"]);
    let why = db.texts("SELECT last_exception FROM outbox_dlq").await;
    assert!(why[0].contains("SQLite has rolled back"), "{why:?}");
}

/// Whatever a handler comes to, also one that is dropped while its transaction
/// begins.
async fn no_session_is_left_inside_a_transaction(db: &Db) {
    with_domain(db).await;
    let slow = later(subscriber(db, Then::Sleep)).max_workers(20).fetch_batch(20);
    let options = of_engine((*db.pg().connect_options()).clone().application_name("engine"));
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    let app = App::postgres(pool.clone()).names(db.names.clone());
    let running = app.only([slow.timeout(SECOND / 5)]).start().await.unwrap();
    db.send_all((0..20_i64).map(|n| outbox::Outgoing::new("q", &n))).await;
    eventually("all have failed", async || {
        db.int("SELECT count(*) FROM outbox WHERE attempts_count > 0").await == 20
    })
    .await;
    let inside = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                  AND application_name = 'engine' AND state LIKE 'idle in transaction%'";
    eventually("no session is inside a transaction", async || db.int(inside).await == 0).await;
    running.stop().await.unwrap();
    // None of them has an answer left that nobody has read.
    let mut again = Vec::new();
    for n in 0..i64::from(pool.size()) {
        let mut one = pool.acquire().await.unwrap();
        let answer: i64 =
            sqlx::query_scalar("SELECT $1::bigint").bind(n).fetch_one(&mut *one).await.unwrap();
        assert_eq!(answer, n);
        again.push(one);
    }
    assert!(!again.is_empty());
}
