//! Secrets planted wherever a user may have some, and a search through all that is told:
//! logs at every level, the driver's too, spans, metrics, events, health, `Debug` of all
//! that is public, what operators see in lists, and dead letters beside their payloads.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use outbox::dlq::{Filter, Replay};
use outbox::ops::{Operator, PeekOptions, SampleOptions, WhyOptions};
use outbox::retry::NoRetry;
use outbox::{
    App, Cbor, Context, HandlerError, MessagePack, Next, Outcome, Outgoing, Publisher, Subscriber,
};
use outbox_tests::db::{Db, Pool};
use outbox_tests::server::Server;
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_both};
use serde_json::json;
use sqlx::postgres::PgPoolOptions;

use crate::program;

on_both!(nothing_tells_a_secret);

/// Secrets that were handed out, and so reached what was to keep them.
static PLANTED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
const KINDS: u32 = 20;

fn secret(kind: u32) -> String {
    PLANTED.lock().unwrap().insert(kind);
    format!("canary-{kind:02}-7f3a")
}

static METRICS: LazyLock<PrometheusHandle> =
    LazyLock::new(|| PrometheusBuilder::new().install_recorder().unwrap());
static SPANS: LazyLock<InMemorySpanExporter> = LazyLock::new(|| {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    capture::start_with(tracing_opentelemetry::layer().with_tracer(provider.tracer("tests")));
    capture::with_the_driver();
    exporter
});

/// What was said, and by whom.
#[derive(Default)]
struct Told(Vec<(String, String)>);

impl Told {
    fn debug(&mut self, what: &str, value: impl std::fmt::Debug) {
        self.0.push((what.into(), format!("{value:?} {value:#?}")));
    }

    fn text(&mut self, what: &str, text: impl Into<String>) {
        self.0.push((what.into(), text.into()));
    }

    /// All have something to say, and none says a secret, in letters or in digits.
    fn check(&self) {
        for (what, text) in &self.0 {
            assert!(!text.trim().is_empty(), "{what} says nothing");
            for kind in 0..KINDS {
                let word = format!("canary-{kind:02}-7f3a");
                let digits: String = word.bytes().map(|byte| format!("{byte:02x}")).collect();
                let lower = text.to_lowercase();
                assert!(!lower.contains(&word) && !lower.contains(&digits), "{what}: {text}");
            }
        }
    }
}

/// Says its secrets to whoever asks, as errors of careless crates do.
#[derive(Debug)]
struct Careless(String, std::io::Error);

impl std::fmt::Display for Careless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Careless {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.1)
    }
}

/// Has no form as JSON, and says what it holds.
struct Unwritable;

impl serde::Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom(secret(16)))
    }
}

#[derive(Clone, Debug)]
struct Key(#[expect(dead_code, reason = "for `Debug`")] String);

fn message(queue: &str) -> Outgoing {
    let nested = json!({ "token": [secret(1)] });
    Outgoing::new(queue, &json!({ "card": secret(2) }))
        .header("authorization", format!("Bearer {}", secret(0)))
        .header("nested", nested)
}

/// What a database says of a row that it refuses.
async fn refused_row(pool: Pool) -> Result<(), HandlerError> {
    let sql = "INSERT INTO cards (number) VALUES ($1)";
    let twice = match &pool {
        Pool::Postgres(pool) => sqlx::query(sql).bind(secret(14)).execute(pool).await.map(drop),
        Pool::Sqlite(pool) => sqlx::query(sql).bind(secret(14)).execute(pool).await.map(drop),
    };
    Ok(twice?)
}

fn handlers(db: &Db, contexts: &Arc<Mutex<Told>>) -> Vec<Subscriber> {
    let (contexts, pool) = (Arc::clone(contexts), db.pool.clone());
    let passed = |_: Context, _: Next| async { Err(HandlerError::new("Layer", secret(10))) };
    let all = [
        Subscriber::new("acks", "acks", move |context: Context| {
            context.publisher().collect(Outgoing::raw("next", secret(12))).unwrap();
            contexts.lock().unwrap().debug("the context", &context);
            contexts.lock().unwrap().debug("the headers", context.headers());
            async {}
        }),
        Subscriber::new("fails", "fails", |_| async {
            let source = std::io::Error::other(secret(7));
            Err::<(), _>(Careless(secret(6), source))
        }),
        Subscriber::new("panics", "panics", |context: Context| async move {
            assert!(context.id() < 0, "{}", secret(8));
        }),
        Subscriber::batches("batches", "batches", 10, |_| async { Err::<(), _>(secret(9)) }),
        Subscriber::new("passed", "passed", |_| async {}).layer(passed),
        Subscriber::new("extracts", "extracts", |_| async {
            Err::<(), _>(HandlerError::new(HandlerError::EXTRACT, secret(11)))
        }),
        Subscriber::new("inserts", "inserts", move |_| refused_row(pool.clone())),
        Subscriber::new(
            "reads",
            ["reads", "texts", "packs", "cbors"],
            |context: Context| async move {
                secret(15);
                context.decode::<u64>().map(drop)
            },
        ),
        Subscriber::new("rejects", "rejects", |_| async { Outcome::reject("of a known kind") }),
        Subscriber::new("slow", "slow", |_| std::future::pending::<()>())
            .timeout(Duration::from_millis(20)),
    ];
    all.map(|one| one.retry(NoRetry)).into()
}

fn messages() -> Vec<Outgoing> {
    let queues = ["acks", "fails", "panics", "batches", "passed", "extracts", "inserts", "rejects"];
    let mut all: Vec<_> = queues.into_iter().chain(["slow", "reads"]).map(message).collect();
    all.push(Outgoing::raw("texts", secret(3)).content_type("text/plain"));
    all.push(Outgoing::encoded::<MessagePack>("packs", &secret(4)));
    all.push(Outgoing::encoded::<Cbor>("cbors", &secret(5)));
    all.push(Outgoing::new("reads", &secret(15)));
    all
}

async fn nothing_tells_a_secret(db: &Db) {
    LazyLock::force(&METRICS);
    LazyLock::force(&SPANS);
    let (mut told, contexts) = (Told::default(), Arc::<Mutex<Told>>::default());
    db.exec("CREATE TABLE cards (number text UNIQUE)").await;
    refused_row(db.pool.clone()).await.expect("the first one is not refused");
    let operator = outbox_tests::roles::operator(db, db.names.clone());
    let events = Arc::<Mutex<Told>>::default();
    let seen = Arc::clone(&events);
    let record = move |event: &outbox::telemetry::Event| {
        seen.lock().unwrap().debug("an event", event);
    };
    // What an error says of itself is kept in dead letters unless an app wants otherwise.
    let app = db.app().error_renderer(|_| Some("hidden".into())).state(Key(secret(13)));
    let app = app.recorder(record).only(handlers(db, &contexts));
    told.debug("the app", &app);
    let running = app.start().await.unwrap();
    let sent = messages();
    told.debug("messages", &sent);
    let (letters, waiting) = (operator.dead_letters(), sent.len() as i64);
    db.send_all(sent).await;
    eventually("all are dead but one", async || db.letters().await == waiting - 1).await;
    told.debug("the running app", &running);
    told.debug("health", running.health().check().await);
    told.text("health as JSON", serde_json::to_string(&running.health().check().await).unwrap());
    running.stop().await.unwrap();
    refused(db, &mut told).await;
    looked_at(db, &operator, &mut told).await;
    let how = Replay::new().payload(secret(17));
    told.debug("a replay", &how);
    let page = letters.list(&Filter::new().queue("fails"), None, 1).await.unwrap();
    letters.replay(&Filter::new().ids([page.letters[0].id]), &how).await.unwrap();

    told.0.append(&mut contexts.lock().unwrap().0);
    told.0.append(&mut events.lock().unwrap().0);
    told.text("metrics", METRICS.render());
    told.debug("spans", SPANS.get_finished_spans().unwrap());
    told.0.extend(capture::lines().iter().map(|line| ("a line".to_owned(), line.text())));
    let of_the_driver = |line: &&capture::Line| line.target.starts_with("sqlx");
    assert!(capture::lines().iter().filter(of_the_driver).count() > 100);
    assert!(told.0.len() > 300, "{} texts are few", told.0.len());
    told.check();

    // They were there all the time.
    let bytes =
        if db.is_postgres() { "encode(payload, 'escape')" } else { "CAST(payload AS TEXT)" };
    let kept =
        format!("SELECT {bytes} || CAST(headers AS text) FROM outbox_dlq WHERE queue = 'slow'");
    let kept = db.texts(kept).await;
    assert!((0..3).all(|kind| kept[0].contains(&secret(kind))), "{kept:?}");
    let planted = PLANTED.lock().unwrap().clone();
    assert!((0..18).all(|kind| planted.contains(&kind)), "{planted:?}");
}

/// What publishers are told.
async fn refused(db: &Db, told: &mut Told) {
    let publisher = Publisher::new(db.names.clone());
    told.debug("the publisher", &publisher);
    told.debug("a message without a form", Outgoing::new("q", &Unwritable));
    db.exec("ALTER TABLE outbox RENAME COLUMN headers TO other").await;
    let mut tell = |what: &str, error: outbox::PublishError| {
        told.debug(what, &error);
        told.text(what, error.to_string());
        told.debug(what, outbox::Error::from(error));
    };
    let unwritable = || Outgoing::new("q", &Unwritable);
    match &db.pool {
        Pool::Postgres(pool) => {
            let mut tx = pool.begin().await.unwrap();
            let encoded = publisher.send(&mut tx, unwritable()).await.unwrap_err();
            // The user's own words about the user's own value: told to the user alone.
            assert!(encoded.to_string().contains(&secret(16)));
            tell("a refused row", publisher.send(&mut tx, message("q")).await.unwrap_err());
        }
        Pool::Sqlite(pool) => {
            let mut tx = outbox::sqlite::begin(pool).await.unwrap();
            publisher.send(&mut tx, unwritable()).await.unwrap_err();
            tell("a refused row", publisher.send(&mut tx, message("q")).await.unwrap_err());
        }
    }
    db.exec("ALTER TABLE outbox RENAME COLUMN other TO headers").await;
    if db.is_postgres() {
        // PostgreSQL shows the row that a constraint refuses.
        db.exec("ALTER TABLE outbox ADD CONSTRAINT one CHECK (queue <> 'checked')").await;
        let mut tx = db.pg().begin().await.unwrap();
        let error = publisher.send(&mut tx, message("checked")).await.unwrap_err();
        tell("a checked row", error);
    }
}

/// What operators see of everything, but for what they ask for by name: a payload.
async fn looked_at(db: &Db, operator: &Operator, told: &mut Told) {
    let letters = operator.dead_letters();
    let id = db.publish("waits", 7).await;
    db.exec("DELETE FROM outbox WHERE queue = 'waits'").await;
    let waits = db.send(message("waits")).await.id().unwrap_or(id);
    told.debug("the operator", operator);
    told.debug("the letters", &letters);
    let page = letters.list(&Filter::new(), None, 100).await.unwrap();
    told.debug("a page", &page);
    told.debug("a letter", letters.show(page.letters[0].id).await.unwrap());
    told.debug("problems", letters.groups(&Filter::new(), 100).await.unwrap());
    told.debug("a row", operator.peek("waits", &PeekOptions::default()).await.unwrap());
    told.debug("why", operator.why(waits, &WhyOptions::default()).await.unwrap());
    told.debug("a sample", operator.sample(&SampleOptions::default()).await.unwrap());
    let columns = "coalesce(last_exception, '') || coalesce(error_kind, '') || failure_reason || \
        coalesce(note, '') || coalesce(fingerprint, '') || queue || coalesce(timer_id, '')";
    for text in db.texts(format!("SELECT {columns} FROM outbox_dlq")).await {
        told.text("a dead letter", text);
    }
    let id = waits.to_string();
    for args in [
        &["stats"][..],
        &["queues"],
        &["why", &id],
        &["doctor"],
        &["check"],
        &["dlq", "list"],
        &["dlq", "groups"],
        &["dlq", "list", "--json"],
        &["doctor", "--json"],
    ] {
        let ran = program::ended(program::shop(db, args)).await;
        told.text(&format!("{args:?}"), ran.out + &ran.err);
    }
}

/// In URLs: right ones, wrong ones, and such as are none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_is_told() {
    if !outbox_tests::backend::require("postgres") {
        return;
    }
    LazyLock::force(&SPANS);
    let server = Server::start(&[]).unwrap();
    let db = Db::of(&server).await;
    // Not in the text of a statement, which the driver logs.
    let mut one = db.pg().acquire().await.unwrap();
    let set = sqlx::query("SELECT set_config('own.word', $1, false)").bind(secret(18));
    set.execute(&mut *one).await.unwrap();
    let make = "DO $$ BEGIN
        EXECUTE format('CREATE ROLE guarded LOGIN PASSWORD %L', current_setting('own.word'));
    END $$";
    sqlx::query(make).execute(&mut *one).await.unwrap();
    drop(one);
    let rules = "host all guarded 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    std::fs::write(server.folder.join("data/pg_hba.conf"), rules).unwrap();
    db.exec("SELECT pg_reload_conf()").await;
    let port = db.pg().connect_options().get_port();
    let mut told = Told::default();
    let at = |password: &str, place: &str| format!("postgres://guarded:{password}@{place}");
    let there = format!("127.0.0.1:{port}/postgres");

    let right = at(&secret(18), &there).parse().unwrap();
    let pool = PgPoolOptions::new().connect_with(right).await.unwrap();
    let app = App::postgres(pool.clone()).names(db.names.clone()).only([]);
    told.debug("the app", &app);
    told.debug("the operator", Operator::postgres(pool, db.names.clone()));
    let wrong = secret(19);
    for url in [
        at(&wrong, &there),
        at(&wrong, "127.0.0.1:1/postgres"),
        at(&wrong, "no-such-host.invalid/postgres"),
        at(&wrong, &format!("127.0.0.1:{port}/no_such_database")),
        at(&wrong, &format!("{there}?sslmode=require")),
    ] {
        // By default it tries a port that refuses it for half a minute.
        let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(2));
        let pool = pool.connect_lazy(&url).unwrap();
        let own = Subscriber::new("it", "q", |_| async {});
        let app = App::postgres(pool.clone()).names(db.names.clone()).only([own]);
        let error = app.start().await.unwrap_err();
        told.debug(&url.replace(&wrong, "…"), &error);
        told.text("an error", format!("{error} {:?}", std::error::Error::source(&error)));
        let error = Operator::postgres(pool, db.names.clone()).check(true).await.unwrap_err();
        told.debug("an operator's error", error);
    }
    for url in [
        at(&wrong, &there),
        at(&wrong, "127.0.0.1:port/postgres"),
        at(&wrong, "[::1/postgres"),
        at(&wrong, &format!("{there}?sslmode=sometimes")),
        format!("postgres://guarded@{there}?sslpassword={wrong}&pasword={wrong}"),
        format!("postgres://guarded:12?{wrong}@{there}"),
        format!("postgres://guarded:12?{wrong}=2@{there}"),
        format!("postgres://guarded:12?host={wrong}@{there}"),
        format!("postgres://guarded:12/{wrong}@{there}"),
        format!("postgres://guarded:12#{wrong}@{there}"),
        format!("postgres://{wrong}:12/34@{there}"),
        format!("postgres://{wrong}@corp:12?34@{there}"),
        format!("mysql://guarded:{wrong}@{there}"),
        format!("guarded:{wrong}@{there}"),
    ] {
        let mut program = program::shop(&db, &["check"]);
        program.env("DATABASE_URL", &url);
        let ran = program::ended(program).await;
        assert_eq!(ran.code, 1, "{ran:?}");
        told.text(&url.replace(&wrong, "…"), ran.out + &ran.err);
    }
    let error = outbox::sqlite::connect(&at(&wrong, &there)).await.unwrap_err();
    told.text("a URL that is not of SQLite", format!("{error} {error:?}"));
    told.0.extend(capture::lines().iter().map(|line| ("a line".to_owned(), line.text())));
    told.check();
    assert!(PLANTED.lock().unwrap().contains(&19));
    db.close().await;
}
