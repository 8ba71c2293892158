//! An app that dies at a step: `killed URL HANDLER [STEP TURN]`, the turn-th time
//! that the step is reached. The steps are those that stand here.

use std::io::Write;
use std::process::abort;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Once, OnceLock};

use outbox::{
    App, Batch, BatchOutcome, Context, HandlerResult, Item, Next, Outcome, Tx, subscriber,
};
use outbox_tests::capture;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};

static FATAL: OnceLock<String> = OnceLock::new();
static TURNS: AtomicI64 = AtomicI64::new(0);

fn step(name: &str) {
    if FATAL.get().is_some_and(|fatal| fatal == name) && TURNS.fetch_sub(1, Ordering::SeqCst) == 1 {
        abort();
    }
}

/// The first handler tells the test.
fn begun() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "begun").and_then(|()| out.flush());
    });
    step("begun");
}

macro_rules! transactional {
    ($name:ident, $database:ty, $insert:literal) => {
        #[subscriber("work", max_workers = 3, fetch_batch = 3, max_poll = "1s")]
        async fn $name(n: i64, mut tx: Tx<$database>) -> anyhow::Result<()> {
            begun();
            sqlx::query($insert).bind(n).execute(&mut *tx).await?;
            step("written");
            outbox::publish(&mut tx, "receipts", &n).await?;
            step("published");
            drop(tx);
            step("returning");
            Ok(())
        }
    };
}

transactional!(on_postgres, sqlx::Postgres, "INSERT INTO done (n) VALUES ($1)");
transactional!(on_sqlite, sqlx::Sqlite, "INSERT INTO done (n) VALUES (?)");

macro_rules! batch {
    ($name:ident, $database:ty, $insert:literal) => {
        /// Some fail at first, so that a run settles those that succeeded.
        #[subscriber("work", batch = 4, max_workers = 3, max_poll = "1s", retry = Constant("10ms"))]
        async fn $name(batch: Batch<i64>, mut tx: Tx<$database>) -> anyhow::Result<BatchOutcome> {
            begun();
            let mut outcome = BatchOutcome::default();
            for Item { message: n, context, .. } in &batch {
                if n % 5 == 0 && context.attempts() == 0 {
                    outcome.set(context, Err::<(), _>("at first"));
                    continue;
                }
                sqlx::query($insert).bind(n).execute(&mut *tx).await?;
                step("written");
                outbox::publish(&mut tx, "receipts", n).await?;
                step("published");
            }
            drop(tx);
            step("returning");
            Ok(outcome)
        }
    };
}

batch!(batch_on_postgres, sqlx::Postgres, "INSERT INTO done (n) VALUES ($1)");
batch!(batch_on_sqlite, sqlx::Sqlite, "INSERT INTO done (n) VALUES (?)");

#[subscriber("work", publish = "receipts", max_workers = 3, fetch_batch = 3, max_poll = "1s")]
async fn returning(n: i64) -> i64 {
    begun();
    step("returning");
    n
}

/// Fails for good.
#[subscriber("work", max_workers = 3, fetch_batch = 3, max_poll = "1s")]
async fn rejecting(_: i64) -> Outcome {
    begun();
    step("returning");
    Outcome::reject("as told")
}

async fn around(ctx: Context, next: Next) -> HandlerResult {
    let result = next.run(ctx).await;
    step("returned");
    result
}

/// The triggers of the test compare with the collation `step`, inside the
/// transactions that claim and ack.
fn sqlite(url: &str) -> anyhow::Result<App> {
    let options = url.parse::<SqliteConnectOptions>()?;
    let options = options.journal_mode(SqliteJournalMode::Wal).collation("step", |a, b| {
        match (a, b) {
            ("work taken", "work taken") => step("taken"),
            ("work deleted", "work deleted") => step("deleted"),
            ("receipts inserted", "receipts inserted") => step("inserted"),
            ("work buried", "work buried") => step("buried"),
            _ => {}
        }
        a.cmp(b)
    });
    Ok(App::sqlite(SqlitePoolOptions::new().connect_lazy_with(options)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (url, handler) = (&words[0], &words[1]);
    if let [fatal, turn] = &words[2..] {
        TURNS.store(turn.parse()?, Ordering::SeqCst);
        FATAL.get_or_init(|| fatal.clone());
    }
    capture::start();
    capture::hook(|line| match line.event() {
        Some("fetched") if line.get("count") != Some("0") => step("fetched"),
        Some("dispatched") => step("dispatched"),
        Some("acked") => step("acked"),
        Some("nacked_terminal") => step("rejected"),
        _ => {}
    });
    let postgres = url.starts_with("postgres");
    let app = if postgres {
        let options = url.parse::<PgConnectOptions>()?.application_name("engine");
        App::postgres(PgPoolOptions::new().max_connections(3).connect_lazy_with(options))
    } else {
        sqlite(url)?
    };
    let subscriber = match handler.as_str() {
        "returning" => returning::subscriber(),
        "rejecting" => rejecting::subscriber(),
        "batch" if postgres => batch_on_postgres::subscriber(),
        "batch" => batch_on_sqlite::subscriber(),
        _ if postgres => on_postgres::subscriber(),
        _ => on_sqlite::subscriber(),
    };
    let app = app.dlq("outbox_dlq").only([subscriber]).layer(around);
    // A machine that stands still fails a start, before anything has happened.
    for _ in 0..2 {
        match app.clone().run().await {
            Err(outbox::Error::Store(error)) if error.transient => {}
            ended => return Ok(ended?),
        }
    }
    Ok(app.run().await?)
}
