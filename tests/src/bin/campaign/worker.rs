//! The app under test, on the public API, as a process of its own.

use std::fmt;
use std::io::Read;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use outbox::telemetry::Event;
use outbox::{App, Batch, BatchOutcome, Context, Item, Outcome, Tx, subscriber};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::SubscriberExt;

use crate::args::Seat;
use crate::journal::{EVENTS, Journal, RUNS, now};
use crate::workload::{Act, EXIT, Message};

static RUN: OnceLock<Journal> = OnceLock::new();
static TOLD: OnceLock<Journal> = OnceLock::new();

fn run(words: &str) {
    RUN.get().expect("opened first").write(words);
}

fn tell(words: &str) {
    TOLD.get().expect("opened first").write(words);
}

/// The word of a run is written by the handler itself: what the framework makes of it is
/// the question.
fn begun(context: &Context, key: &str) {
    run(&format!("begun {} {} {} {key}", context.id(), context.fence(), context.subscriber()));
}

fn ended(context: &Context, word: &str) {
    run(&format!("ended {} {} {word}", context.id(), context.fence()));
}

struct Hostile;

impl fmt::Debug for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a\0b")?;
        (0..5_000).try_for_each(|_| f.write_str("\u{1F980}"))
    }
}

impl fmt::Display for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Hostile {}

fn panics(message: &Message, context: &Context) -> bool {
    matches!(message.act, Act::Panic(runs) if context.attempts() < runs)
}

/// Says what the run comes to, and then comes to it.
fn end(message: &Message, context: &Context) -> Result<Outcome> {
    let created = context.created_at().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let early = u128::from(now().unsigned_abs()) < created.as_micros() + 800_000;
    match message.act {
        Act::Fail(runs) if context.attempts() < runs => {
            ended(context, "fail");
            anyhow::bail!("as it was told")
        }
        Act::Hostile => {
            ended(context, "fail");
            Err(Hostile.into())
        }
        Act::Panic(_) if panics(message, context) => {
            ended(context, "panic");
            panic!("as it was told")
        }
        Act::Reject => {
            ended(context, "reject");
            Ok(Outcome::reject("as it was told"))
        }
        Act::Snooze if early => {
            ended(context, "snooze");
            Ok(Outcome::Snooze(Duration::from_millis(100)))
        }
        Act::Abort => std::process::abort(),
        Act::Exit => std::process::exit(EXIT),
        _ => {
            ended(context, "ok");
            Ok(Outcome::Ack)
        }
    }
}

async fn play(message: &Message, context: &Context) {
    begun(context, &message.key);
    let wait = Duration::from_millis(message.ms);
    if message.act == Act::Block {
        std::thread::sleep(wait);
    } else {
        tokio::time::sleep(wait).await;
    }
}

#[subscriber(
    "single",
    lease_ttl = "2s",
    max_poll = "1s",
    retry = Constant("100ms", max_attempts = 3)
)]
async fn single(message: Message, context: Context) -> Result<Outcome> {
    play(&message, &context).await;
    end(&message, &context)
}

#[subscriber(
    "batch",
    batch = 6,
    batch_wait = "50ms",
    max_workers = 4,
    lease_ttl = "2s",
    max_poll = "1s",
    retry = Constant("100ms", max_attempts = 3)
)]
async fn batch(batch: Batch<Message>) -> BatchOutcome {
    let mut longest = 0;
    for Item { message, context, .. } in &batch {
        begun(context, &message.key);
        longest = longest.max(message.ms);
    }
    tokio::time::sleep(Duration::from_millis(longest)).await;
    if batch.iter().any(|item| panics(&item.message, &item.context)) {
        batch.iter().for_each(|item| ended(&item.context, "panic"));
        panic!("as it was told")
    }
    let mut outcome = BatchOutcome::default();
    for Item { message, context, .. } in &batch {
        outcome.set(context, end(message, context));
    }
    outcome
}

/// On a blocking thread, which nobody can stop.
#[subscriber(
    "plain",
    max_workers = 4,
    lease_ttl = "2s",
    max_poll = "1s",
    retry = Constant("100ms", max_attempts = 3)
)]
fn plain(message: Message, context: Context) -> Result<Outcome> {
    begun(&context, &message.key);
    std::thread::sleep(Duration::from_millis(message.ms));
    end(&message, &context)
}

macro_rules! transactional {
    ($name:ident, $database:ty, $insert:literal) => {
        #[subscriber(
                                                    "tx",
                                                    max_workers = 3,
                                                    lease_ttl = "2s",
                                                    max_poll = "1s",
                                                    retry = Constant("100ms", max_attempts = 3)
                                                )]
        async fn $name(
            message: Message,
            context: Context,
            mut tx: Tx<$database>,
        ) -> Result<Outcome> {
            play(&message, &context).await;
            sqlx::query($insert).bind(&message.key).execute(&mut *tx).await.inspect_err(|_| {
                ended(&context, "fail");
            })?;
            drop(tx);
            end(&message, &context)
        }
    };
}

transactional!(on_postgres, sqlx::Postgres, "INSERT INTO effect (key) VALUES ($1)");
transactional!(on_sqlite, sqlx::Sqlite, "INSERT INTO effect (key) VALUES (?)");

#[subscriber(
    "returns",
    publish = "receipts",
    lease_ttl = "2s",
    max_poll = "1s",
    retry = Constant("100ms", max_attempts = 3)
)]
async fn returns(message: Message, context: Context) -> Result<Message> {
    play(&message, &context).await;
    match message.act {
        // What is returned is published, so it cannot say these.
        Act::Reject | Act::Snooze => ended(&context, "ok"),
        _ => drop(end(&message, &context)?),
    }
    Ok(Message { key: format!("receipt:{}", message.key), act: Act::Ok, ms: 0 })
}

#[subscriber("receipts", lease_ttl = "2s", max_poll = "1s")]
async fn receipts(message: Message, context: Context) -> Result<Outcome> {
    play(&message, &context).await;
    end(&message, &context)
}

#[subscriber(
    "crash",
    max_deliveries = 3,
    max_workers = 4,
    lease_ttl = "2s",
    max_poll = "1s",
    retry = Constant("100ms", max_attempts = 3)
)]
async fn crash(message: Message, context: Context) -> Result<Outcome> {
    play(&message, &context).await;
    end(&message, &context)
}

#[subscriber(["rare", "timers"], lease_ttl = "2s", min_poll = "500ms", max_poll = "1s")]
async fn rare(message: Message, context: Context) -> Result<Outcome> {
    play(&message, &context).await;
    end(&message, &context)
}

fn record(event: &Event) {
    match event {
        Event::LeaseLost { delivery, phase, unknown, .. } => {
            let (id, deliveries) = (delivery.row_id, delivery.deliveries_count);
            tell(&format!("lost {id} {deliveries} {phase} {unknown}"));
        }
        Event::WaitedTooLong { .. } => tell("waited"),
        Event::Listener { up, .. } => tell(&format!("listens {up}")),
        _ => {}
    }
}

/// Warnings and errors, by their message.
struct Log;

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Log {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                if matches!(field.name(), "message" | "error") {
                    self.0.push_str(&format!(" {value:?}").replace('\n', " "));
                }
            }
        }
        let known = event.metadata().target().starts_with("outbox");
        if known && *event.metadata().level() <= tracing::Level::WARN {
            let mut text = Text(String::new());
            event.record(&mut text);
            tell(&format!("log{}", text.0));
        }
    }
}

pub async fn work(seat: Seat) -> Result<()> {
    let opened = Journal::open(&seat.folder, RUNS, &seat.name)?;
    let _ = RUN.set(opened);
    let opened = Journal::open(&seat.folder, EVENTS, &seat.name)?;
    let _ = TOLD.set(opened);
    end_with_parent();
    std::panic::set_hook(Box::new(|_| {}));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Log))?;
    let app = if seat.url.starts_with("postgres") {
        let options: PgConnectOptions = seat.url.parse()?;
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(Duration::from_secs(5))
            .connect_lazy_with(options.application_name(&seat.name));
        App::postgres(pool).only([on_postgres::subscriber()])
    } else {
        App::sqlite(outbox::sqlite::connect(&seat.url).await?).only([on_sqlite::subscriber()])
    };
    let others = [
        single::subscriber(),
        batch::subscriber(),
        plain::subscriber(),
        returns::subscriber(),
        receipts::subscriber(),
        crash::subscriber(),
        rare::subscriber(),
    ];
    app.dlq("outbox_dlq")
        .only(others)
        .drain_timeout(Duration::from_secs(4))
        .recorder(record)
        .on_startup(|| async {
            tell("ready");
            anyhow::Ok(())
        })
        .run()
        .await?;
    Ok(())
}

/// A process that is left over would go on with another run's work.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(3);
    });
}
