//! An app for the tests of faults to break: `faulty URL JOB`, until it is asked to end
//! or dies of a message. Whatever it says goes to standard output.

use std::hint::black_box;
use std::io::Write;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::{App, Bytes, Context, Outgoing, Publisher, State, Tx, subscriber};
use sqlx::sqlite::SqlitePool;

/// A whole line, at once: the process may die the next moment.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// All of a claim have begun before one of them brings the process down. Alone it waits until
/// it is written what became of the one before it, which would be condemned in its place.
#[subscriber(
    "deadly",
    max_deliveries = 3,
    max_workers = 16,
    fetch_batch = 16,
    lease_ttl = "60s",
    min_poll = "100ms",
    max_poll = "100ms"
)]
async fn deadly(what: String, ctx: Context) {
    say(&what);
    let wait = match (ctx.deliveries() > 3, what.starts_with("innocent")) {
        (false, _) => 50,
        (true, false) => 2000,
        (true, true) => 0,
    };
    tokio::time::sleep(Duration::from_millis(wait)).await;
    match what.as_str() {
        "abort" => std::process::abort(),
        "exit" => std::process::exit(3),
        "stack" => say(&deeper(0).to_string()),
        // Its address space is limited to less.
        "memory" => say(&black_box(vec![1_u8; 16 << 30]).len().to_string()),
        _ => tokio::time::sleep(Duration::from_millis(wait)).await,
    }
}

fn deeper(depth: u64) -> u64 {
    let frame = black_box([depth; 512]);
    if frame[0] == u64::MAX { 0 } else { 1 + deeper(frame[0] + 1) }
}

#[subscriber("large", max_workers = 1, min_poll = "100ms", max_poll = "100ms")]
async fn large(body: Bytes, _: Context) {
    say(&format!("{} bytes", body.len()));
}

/// Every third one fails at first, and every seventh for good.
#[subscriber("busy", retry = Constant("10ms", max_attempts = 2), lease_ttl = "2s", max_poll = "1s")]
async fn busy(n: i64, mut tx: Tx<sqlx::Sqlite>, ctx: Context) -> anyhow::Result<()> {
    static SAID: Once = Once::new();
    SAID.call_once(|| say("begun"));
    anyhow::ensure!(n % 7 > 0, "for good");
    anyhow::ensure!(n % 3 > 0 || ctx.attempts() > 0, "at first");
    sqlx::query("INSERT INTO done (n) VALUES (?)").bind(n).execute(&mut *tx).await?;
    Ok(())
}

/// Notes by its own clock when it handles what. Every third one fails at first.
#[subscriber(
    "timed",
    retry = Constant("1s", max_attempts = 2),
    lease_ttl = "2s",
    min_poll = "100ms",
    max_poll = "100ms"
)]
async fn timed(n: i64, mut tx: Tx<sqlx::Sqlite>, ctx: Context) -> anyhow::Result<()> {
    anyhow::ensure!(n % 3 > 0 || ctx.attempts() > 0, "at first");
    let note = "INSERT INTO handled (n, at)
        VALUES (?, CAST(round(unixepoch('subsec') * 1000) AS INTEGER))";
    sqlx::query(note).bind(n).execute(&mut *tx).await?;
    Ok(())
}

/// Runs until each of them runs in two processes. Not in the time of a lease, so that none
/// is extended, and whoever has lost one learns it from the ack.
#[subscriber("shared", max_workers = 10, lease_ttl = "60s", min_poll = "100ms", max_poll = "100ms")]
async fn shared(n: i64, State(pool): State<SqlitePool>) -> anyhow::Result<()> {
    let run = "INSERT INTO runs (n, process) VALUES (?, ?)";
    sqlx::query(run).bind(n).bind(std::process::id()).execute(&pool).await?;
    let alone = "SELECT count(*) FROM (SELECT n FROM runs GROUP BY n HAVING count(*) < 2)";
    while sqlx::query_scalar::<_, i64>(alone).fetch_one(&pool).await? > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Stood still while they run, and longer than their leases. It says so when three of them do.
#[subscriber(
    "held",
    max_workers = 3,
    lease_ttl = "15s",
    retry = Constant("1h"),
    min_poll = "100ms",
    max_poll = "100ms"
)]
async fn held(how: String) -> anyhow::Result<()> {
    static STARTS: AtomicUsize = AtomicUsize::new(0);
    if STARTS.fetch_add(1, Ordering::SeqCst) == 2 {
        say("begun");
    }
    // Longer than it takes to have the process stand still.
    let takes = if how == "runs" { 3600 } else { 10 };
    tokio::time::sleep(Duration::from_secs(takes)).await;
    anyhow::ensure!(how != "fails", "as it was told");
    Ok(())
}

/// Publishes numbers from a hundred on, a few of which are due in so many seconds, and notes
/// by its own clock when each is due.
async fn produce_timed(pool: SqlitePool, later: u64) -> anyhow::Result<()> {
    for n in 100_i64..130 {
        publish_timed(&pool, n, if n < 125 { 0 } else { later }).await?;
    }
    Ok(())
}

async fn publish_timed(pool: &SqlitePool, n: i64, delay: u64) -> anyhow::Result<()> {
    let mut tx = outbox::sqlite::begin(pool).await?;
    let note = "INSERT INTO published (n, due)
        VALUES (?, CAST(round(unixepoch('subsec') * 1000) AS INTEGER) + 1000 * ?)";
    sqlx::query(note).bind(n).bind(i64::try_from(delay)?).execute(&mut *tx).await?;
    let message = Outgoing::new("timed", &n).delay(Duration::from_secs(delay));
    Publisher::from_env()?.send(&mut tx, message).await?;
    Ok(tx.commit().await?)
}

/// The same without end, and every fifth in two seconds.
async fn produce_steadily(pool: SqlitePool) -> anyhow::Result<()> {
    let first = i64::from(std::process::id()) << 24;
    for n in first.. {
        publish_timed(&pool, n, if n % 5 == 0 { 2 } else { 0 }).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Writes a number and publishes it, in one transaction, again and again.
async fn produce(pool: SqlitePool) -> anyhow::Result<()> {
    let first = i64::from(std::process::id()) << 24;
    for n in first.. {
        let mut tx = outbox::sqlite::begin(&pool).await?;
        sqlx::query("INSERT INTO biz (n) VALUES (?)").bind(n).execute(&mut *tx).await?;
        outbox::publish(&mut tx, "busy", &n).await?;
        tx.commit().await?;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, job] = &words[..] else { anyhow::bail!("two words") };
    let app = if url.starts_with("postgres") {
        App::postgres(sqlx::PgPool::connect_lazy(url)?)
    } else {
        let pool = outbox::sqlite::connect(url).await?;
        let (job, producers) = (job.clone(), pool.clone());
        // What fails a producer ends the process, and so fails the test.
        tokio::spawn(async move {
            let produced = match job.as_str() {
                "busy" => produce(producers).await,
                "timed producer" => produce_timed(producers, 1).await,
                "later producer" => produce_timed(producers, 5400).await,
                "steady producer" => produce_steadily(producers).await,
                _ => Ok(()),
            };
            produced.unwrap_or_else(|error| panic_of(&error));
        });
        App::sqlite(pool.clone()).state(pool)
    };
    let one = match job.as_str() {
        "deadly" => deadly::subscriber(),
        "large" => large::subscriber(),
        "held" => held::subscriber(),
        "shared" => shared::subscriber(),
        "timed" | "timed producer" | "later producer" | "steady producer" => timed::subscriber(),
        _ => busy::subscriber(),
    };
    Ok(app.dlq("outbox_dlq").only([one]).run().await?)
}

fn panic_of(error: &anyhow::Error) {
    say(&format!("{error:#}"));
    std::process::exit(4);
}
