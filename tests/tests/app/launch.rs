//! A start that cannot succeed is refused, with every reason at once.

use outbox::{
    AckPolicy, App, Context, Error, FromContext, HandlerError, State, States, Subscriber, Tx,
    subscriber,
};
use outbox_tests::db::Db;
use outbox_tests::probe::free;
use outbox_tests::{capture, on_both, on_postgres};

use super::*;

on_both!(
    no_subscriber_is_refused_and_the_text_tells_of_linking,
    every_reason_is_told_at_once,
    settings_that_would_do_harm_are_refused,
    two_subscribers_of_one_queue_are_refused,
    retries_that_outlast_the_deliveries_are_warned_of,
    a_table_that_is_missing_is_refused_with_what_makes_it,
    tables_that_are_missing_are_refused_with_one_text_that_makes_them,
    a_table_that_is_too_old_is_refused_with_the_missing_column,
    a_missing_dead_letter_table_counts_only_where_one_is_asked_for,
    a_refused_start_can_be_repeated_once_mended,
    a_database_that_refuses_hides_no_other_reason,
    an_extractor_around_a_transaction_is_checked_as_the_transaction_is,
);

outbox_tests::cases!(sqlite in sqlite_only: a_file_that_cannot_be_written_is_refused);

on_postgres!(
    a_pool_too_small_for_the_handlers_with_transactions_is_told_of,
    a_table_that_lies_elsewhere_is_refused_with_where_it_is,
    a_server_that_takes_no_writes_is_told_of,
    a_second_parameter_that_takes_the_transaction_is_refused,
);

async fn refusal(app: &App) -> String {
    app.start().await.expect_err("the start is refused").to_string()
}

fn nothing(name: &'static str, queue: &str) -> Subscriber {
    Subscriber::new(name, queue, |_| async {})
}

async fn no_subscriber_is_refused_and_the_text_tells_of_linking(db: &Db) {
    let text = refusal(&db.app()).await;
    assert!(text.contains("no subscriber") && text.contains("use that_crate as _;"), "{text}");
}

#[derive(Clone)]
struct Mailer;

#[subscriber("mail")]
async fn mail(_: u64, _: State<Mailer>) {}

const MAIL_LINE: u32 = line!() - 2;

async fn every_reason_is_told_at_once(db: &Db) {
    db.exec("DROP TABLE outbox").await;
    db.exec("DROP TABLE outbox_dlq").await;
    let wrong = nothing("wrong", "q")
        .max_workers(0)
        .fetch_batch(0)
        .max_deliveries(0)
        .lease_ttl(Duration::ZERO)
        .min_poll(HOUR)
        .max_poll(SECOND)
        .timeout(Duration::MAX)
        .batch_wait(SECOND)
        .retry(outbox::retry::Exponential::new(SECOND).multiplier(f64::NAN));
    let app =
        db.app().only([wrong, nothing("other", "q"), nothing("empty", ""), mail::subscriber()]);
    let text = refusal(&app.dlq("x".repeat(70))).await;
    for part in [
        "max_workers",
        "fetch_batch",
        "max_deliveries",
        "lease_ttl",
        "min_poll",
        "`timeout` is above",
        "`batch_wait` (1s) is above half of `lease_ttl`",
        "multiplier",
        "already has the subscriber",
        "queue name is empty",
        "Mailer",
        &format!("{}:{MAIL_LINE}", file!()),
        "70 bytes",
        if db.is_postgres() { "table \"outbox\" does not" } else { "table outbox does not" },
        "outbox_dlq",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

async fn settings_that_would_do_harm_are_refused(db: &Db) {
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|queue| nothing("it", queue));
    let many = |_: Vec<outbox::Context>| async {};
    let app = db.app().only([
        Subscriber::batches("many", "e", 100_001, many),
        a.max_workers(usize::MAX),
        b.max_workers(10_001),
        c.retry(outbox::retry::Exponential::new(SECOND).multiplier(0.99)),
        d.retry(outbox::retry::Linear::new(SECOND, SECOND).max_delay(Duration::ZERO)),
    ]);
    let text = refusal(&app).await;
    for part in [
        "`max_workers` is 18446744073709551615; it must be at most 10000",
        "`max_workers` is 10001",
        "`batch` is 100001; it must be at most 100000",
        "`multiplier` is 0.99; it must be at least 1",
        "`max_delay` is below 1 µs",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

/// No claim would tell of it before a message is due.
async fn a_file_that_cannot_be_written_is_refused(db: &Db) {
    use std::str::FromStr as _;

    use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

    let options = SqliteConnectOptions::from_str(&db.url).unwrap();
    let app =
        |options| App::sqlite(SqlitePool::connect_lazy_with(options)).only([nothing("it", "q")]);
    let text = refusal(&app(options.clone().read_only(true))).await;
    assert!(text.contains(".db is read-only for this process"), "{text}");
    // A writer who keeps the lock refuses no start, and none waits for it.
    let lock = db.lock().await;
    let patient = app(options.busy_timeout(HOUR));
    let running = outbox_tests::wait::soon("the start", patient.start()).await.unwrap();
    lock.release().await;
    running.stop().await.unwrap();
}

async fn retries_that_outlast_the_deliveries_are_warned_of(db: &Db) {
    capture::start();
    let named = |name, queue: &str, most| nothing(name, queue).max_deliveries(most);
    let ten: &str = outbox_tests::backend::unique("ten of nine").leak();
    let limited = outbox::retry::Constant::new(SECOND).max_attempts(3);
    let app = db.app().only([
        named(ten, "a", 9),
        named("ten of ten", "b", 10),
        named("three of three", "c", 3).retry(limited),
        named("an hour", "f", 3).retry(outbox::retry::Constant::new(SECOND).max_total_delay(HOUR)),
        named("rejecting", "d", 1).ack(AckPolicy::RejectOnError),
        nothing("without a limit", "e"),
    ]);
    app.start().await.unwrap().stop().await.unwrap();
    let lines = capture::lines().into_iter().filter(|line| {
        line.fields.get("message").is_some_and(|it| it.contains("more failed runs"))
    });
    let told: Vec<_> = lines.map(|line| line.fields["subscriber"].clone()).collect();
    assert_eq!(told.iter().filter(|name| *name == ten).count(), 1, "{told:?}");
    assert!(told.iter().all(|name| name.starts_with("ten of nine")), "{told:?}");
}

async fn two_subscribers_of_one_queue_are_refused(db: &Db) {
    let twice = Subscriber::new("two", ["b", "a"], |_| async {});
    let text = refusal(&db.app().only([nothing("one", "a"), twice])).await;
    assert!(text.contains("`two`") && text.contains("`a`") && text.contains("`one`"), "{text}");
    assert!(text.contains("launch.rs:"), "{text}");
}

async fn a_table_that_is_missing_is_refused_with_what_makes_it(db: &Db) {
    db.exec("DROP TABLE outbox").await;
    let text = refusal(&db.app().only([nothing("it", "q")])).await;
    assert!(text.contains("does not exist") && text.contains("outbox::migrate"), "{text}");
    assert!(text.contains("CREATE TABLE IF NOT EXISTS \"outbox\""), "{text}");
    assert!(!text.contains("\"outbox_dlq\""), "the others are there: {text}");
}

async fn a_server_that_takes_no_writes_is_told_of(db: &Db) {
    let options = (*db.pg().connect_options()).clone();
    let options = options.options([("default_transaction_read_only", "on")]);
    let pool = sqlx::PgPool::connect_with(options).await.unwrap();
    let told = outbox::schema::validate_schema(&pool, &db.names, true).await.unwrap_err();
    let outbox::Error::Schema(told) = told else { panic!("{told}") };
    let [one] = &told.differences[..] else { panic!("{told}") };
    assert!(!one.fatal && one.what.contains("`default_transaction_read_only` is on"), "{one}");
    let mut tx = pool.begin().await.unwrap();
    let refused = outbox::publish(&mut tx, "q", &1).await.unwrap_err().to_string();
    assert!(refused.contains("name the server that takes writes"), "{refused}");
    drop(tx);
    pool.close().await;
}

async fn a_table_that_lies_elsewhere_is_refused_with_where_it_is(db: &Db) {
    let app = db.app().only([nothing("it", "q")]);
    db.exec("CREATE SCHEMA \"My shop\"").await;
    db.exec("GRANT USAGE ON SCHEMA \"My shop\" TO PUBLIC").await;
    db.exec("ALTER TABLE outbox SET SCHEMA \"My shop\"").await;
    let text = refusal(&app).await;
    let told = "does not exist; there is one in the schema \"My shop\", which is not in the search \
                path (`OUTBOX_SCHEMA`";
    assert!(text.contains(told), "{text}");
}

async fn tables_that_are_missing_are_refused_with_one_text_that_makes_them(db: &Db) {
    for table in ["outbox", "outbox_dlq", "outbox_paused"] {
        db.exec(format!("DROP TABLE {table}")).await;
    }
    let text = refusal(&db.app().dlq("outbox_dlq").only([nothing("it", "q")])).await;
    assert!(text.contains("`outbox migrate` makes"), "{text}");
    for table in ["outbox", "outbox_dlq", "outbox_paused"] {
        let making = format!("CREATE TABLE IF NOT EXISTS \"{table}\" (");
        assert_eq!(text.matches(&making).count(), 1, "{text}");
    }
}

async fn a_table_that_is_too_old_is_refused_with_the_missing_column(db: &Db) {
    db.exec("ALTER TABLE outbox DROP COLUMN first_attempt_at").await;
    db.exec("ALTER TABLE outbox_dlq DROP COLUMN error_kind").await;
    let text = refusal(&db.app().only([nothing("it", "q")])).await;
    assert!(text.contains("first_attempt_at") && text.contains("error_kind"), "{text}");
    assert!(text.contains("ADD COLUMN"), "{text}");
}

async fn a_missing_dead_letter_table_counts_only_where_one_is_asked_for(db: &Db) {
    db.exec("DROP TABLE outbox_dlq").await;
    let text = refusal(&db.app().only([nothing("it", "q")])).await;
    assert!(text.contains("outbox_dlq"), "{text}");
    let without = db.named(Default::default()).app().only([nothing("it", "q")]);
    without.start().await.unwrap().stop().await.unwrap();
}

async fn a_refused_start_can_be_repeated_once_mended(db: &Db) {
    db.exec("ALTER TABLE outbox RENAME TO elsewhere").await;
    let (subscriber, probe) = free("it", "q");
    let app = db.app().only([subscriber]);
    refusal(&app).await;
    db.exec("ALTER TABLE elsewhere RENAME TO outbox").await;
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    assert_eq!(probe.start().await.n, 7);
    running.stop().await.unwrap();
}

async fn a_database_that_refuses_hides_no_other_reason(db: &Db) {
    let app = if db.is_postgres() {
        let options = (*db.pg().connect_options()).clone().database("no_such_database");
        App::postgres(sqlx::PgPool::connect_lazy_with(options))
    } else {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename("/no/such/folder/file");
        App::sqlite(sqlx::SqlitePool::connect_lazy_with(options))
    };
    let text = refusal(&app.only([nothing("one", "a"), nothing("two", "a")])).await;
    assert!(text.contains("already has the subscriber"), "{text}");
    assert!(text.contains("no_such_database") || text.contains("unable to open"), "{text}");
}

#[test]
fn a_state_says_who_is_to_give_it() {
    let text = <State<Mailer> as FromContext>::check(&outbox::States::default()).unwrap_err();
    assert!(text.contains("Mailer") && text.contains(".state("), "{text}");
}

/// What the documentation of the trait shows.
struct Accounts<DB: outbox::Lends>(Tx<DB>);

impl<DB: outbox::Lends> FromContext for Accounts<DB> {
    type Rejection = HandlerError;
    const TAKES_TRANSACTION: bool = Tx::<DB>::TAKES_TRANSACTION;

    async fn from_context(ctx: &Context) -> Result<Self, HandlerError> {
        Tx::from_context(ctx).await.map(Accounts)
    }

    fn check(states: &States) -> Result<(), String> {
        Tx::<DB>::check(states)
    }
}

fn asking<DB: outbox::Lends>() -> [Subscriber; 3] {
    let [a, b, c] = ["a", "b", "c"].map(|queue| nothing("it", queue));
    [
        a.requires::<Accounts<DB>>(),
        b.requires::<Option<Accounts<DB>>>(),
        c.requires::<Result<Accounts<DB>, HandlerError>>(),
    ]
}

async fn an_extractor_around_a_transaction_is_checked_as_the_transaction_is(db: &Db) {
    let (there, elsewhere) = if db.is_postgres() {
        (asking::<sqlx::Postgres>(), asking::<sqlx::Sqlite>())
    } else {
        (asking::<sqlx::Sqlite>(), asking::<sqlx::Postgres>())
    };
    let text = refusal(&db.app().only(elsewhere)).await;
    assert_eq!(text.matches("it takes `Tx<").count(), 3, "{text}");
    let acked_first = there.clone().map(|one| one.ack(AckPolicy::AckFirst));
    let text = refusal(&db.app().only(acked_first)).await;
    assert_eq!(text.matches("it takes `Tx`, but under `AckFirst`").count(), 3, "{text}");
    db.app().only(there).start().await.unwrap().stop().await.unwrap();
}

#[subscriber("twice")]
async fn twice(_: u64, _: Accounts<sqlx::Postgres>, _: Option<Tx<sqlx::Postgres>>) {}

async fn a_second_parameter_that_takes_the_transaction_is_refused(db: &Db) {
    let Err(Error::Launch(reasons)) = db.app().only([twice::subscriber()]).start().await else {
        panic!("it started")
    };
    let [reason] = &reasons[..] else { panic!("{reasons:?}") };
    assert!(
        reason.contains("subscriber `twice`") && reason.contains("one extractor of yours"),
        "{reason}"
    );
}

async fn a_pool_too_small_for_the_handlers_with_transactions_is_told_of(db: &Db) {
    capture::start();
    let (options, told) = ((*db.pg().connect_options()).clone(), "more workers take `Tx`");
    for (connections, workers, warned) in [(7, 7, false), (7, 8, true)] {
        let pool = sqlx::postgres::PgPoolOptions::new().max_connections(connections);
        let app = App::postgres(pool.connect_lazy_with(options.clone()));
        let lent = nothing("lent", "a").max_workers(workers).requires::<Tx<sqlx::Postgres>>();
        let app = app.names(db.names.clone()).only([lent, nothing("plain", "b").max_workers(50)]);
        app.start().await.unwrap().stop().await.unwrap();
        let lines = capture::lines();
        let line = lines.iter().find(|line| {
            line.get("message").is_some_and(|text| text.contains(told))
                && line.get("workers") == Some(&*workers.to_string())
        });
        assert_eq!(line.is_some(), warned, "{connections} for {workers}");
    }
}
