//! A process whose writes are made to fail: `swept URL FLOW FIRST [BUSY]`. It goes through
//! the flow three times, or twice if it is a long one, numbered from `FIRST`, and tells how
//! each ended: well; with an error that its caller was told; or `stuck`, in an app that is
//! to get over it. `BUSY`: it waits for no lock. Another connection has it at first: `call`, when
//! the call is made; `handler`, when a handler ends; or nobody has: `impatient`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use outbox::dlq::{Filter, Replay};
use outbox::ops::Operator;
use outbox::retry::Constant;
use outbox::{
    App, Context, FromContext, Outcome, Outgoing, Publisher, RunningApp, Subscriber, TableNames, Tx,
};
use outbox_tests::wait::{PATIENCE, standing_still};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Sqlite};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(10);

fn names() -> TableNames {
    TableNames::default().with_dlq("outbox_dlq").expect("a name")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (url, flow) = (&words[0], &*words[1]);
    let first: i64 = words[2].parse()?;
    let busy = words.get(3).map(String::as_str);
    let wait = if busy.is_some() { Duration::ZERO } else { PATIENCE };
    let options: SqliteConnectOptions = url.parse()?;
    let options = options.create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(PATIENCE);
    let pool = pool.connect_lazy_with(options.clone().busy_timeout(wait));
    let other = Other::of(options, busy);
    let times = if matches!(flow, "batch ack" | "drain" | "start") { 2 } else { 3 };
    for n in first..first + times {
        if n == first && busy == Some("call") {
            other.hold().await?;
        }
        match run(&pool, &other, flow, n).await {
            Ok(()) => println!("ended {n}"),
            Err(why) => {
                let how = if why.is::<Stuck>() { "stuck" } else { "failed" };
                println!("{how} {n}: {why:#}");
                // By then a lock that somebody has is free.
                other.rests().await?;
                sleep(LEASE / 5).await;
            }
        }
    }
    // What a connection writes and flushes when it is closed is part of every run.
    other.pool.close().await;
    pool.close().await;
    Ok(())
}

/// What an app does not get over: no caller was told that anything failed.
#[derive(Debug)]
struct Stuck(&'static str);

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

async fn run(pool: &SqlitePool, other: &Other, flow: &str, n: i64) -> anyhow::Result<()> {
    let operator = Operator::sqlite(pool.clone(), names());
    match flow {
        "publish" => publish(pool, n..n + 1).await?,
        "batch" => publish(pool, 10 * n..10 * n + 3).await?,
        "timer" | "cancel" => {
            let mut tx = outbox::sqlite::begin(pool).await?;
            if flow == "timer" {
                let timer = Outgoing::new("timers", &1).timer_id("t").delay(PATIENCE);
                timer.publish(&mut tx).await?;
            } else {
                Publisher::default().cancel_timer(&mut tx, "q", "t").await?;
            }
            tx.commit().await?;
        }
        "replay" => {
            operator.dead_letters().replay(&Filter::new(), &Replay::new()).await?;
        }
        "purge" => {
            operator.dead_letters().purge(&Filter::new()).await?;
        }
        "pause" => {
            operator.pause(&["q"], None).await?;
        }
        "migrate" => outbox::schema::migrate_tables(pool, &names()).await?,
        "start" => start(pool, n).await?,
        "batch ack" | "drain" => {
            publish(pool, 10 * n..10 * n + 5).await?;
            work(pool, other, flow).await?;
        }
        _ => {
            publish(pool, n..n + 1).await?;
            work(pool, other, flow).await?;
        }
    }
    Ok(())
}

/// Another writer.
#[derive(Clone)]
struct Other {
    pool: SqlitePool,
    waits: Arc<AtomicBool>,
    holds: Arc<Mutex<Option<JoinHandle<sqlx::Result<()>>>>>,
}

impl Other {
    fn of(options: SqliteConnectOptions, busy: Option<&str>) -> Self {
        let pool = SqlitePoolOptions::new().max_connections(1).connect_lazy_with(options);
        let waits = Arc::new(AtomicBool::new(busy == Some("handler")));
        Self { pool, waits, holds: Arc::default() }
    }

    /// Has the lock for a while.
    async fn hold(&self) -> anyhow::Result<()> {
        let tx = outbox::sqlite::begin(&self.pool).await?;
        println!("busy");
        let holds = tokio::spawn(async move {
            sleep(LEASE / 10).await;
            tx.rollback().await
        });
        *self.holds.lock().expect("nobody has panicked") = Some(holds);
        Ok(())
    }

    /// Waits until it has let go.
    async fn rests(&self) -> anyhow::Result<()> {
        let holds = self.holds.lock().expect("nobody has panicked").take();
        if let Some(holds) = holds { Ok(holds.await??) } else { Ok(()) }
    }

    async fn hold_once(&self) -> anyhow::Result<()> {
        if self.waits.swap(false, Ordering::SeqCst) { self.hold().await } else { Ok(()) }
    }
}

/// Each beside a row of the caller's.
async fn publish(pool: &SqlitePool, numbers: Range<i64>) -> anyhow::Result<()> {
    let mut tx = outbox::sqlite::begin(pool).await?;
    for n in numbers.clone() {
        sqlx::query("INSERT INTO biz VALUES (?)").bind(n).execute(&mut *tx).await?;
    }
    if numbers.end - numbers.start == 1 {
        outbox::publish(&mut tx, "q", &numbers.start).await?;
    } else {
        let messages = numbers.map(|n| Outgoing::new("q", &n));
        Publisher::default().publish_batch(&mut tx, messages).await?;
    }
    Ok(tx.commit().await?)
}

/// An app on the file that `DATABASE_URL` names makes its tables by itself.
async fn start(pool: &SqlitePool, n: i64) -> anyhow::Result<()> {
    let one = Subscriber::new("swept", "q", |context| handle("start".into(), context));
    let one = one.lease_ttl(LEASE).min_poll(SOON).max_poll(SOON * 10);
    let running = App::from_env().names(names()).only([one]).start().await?;
    let mut tx = outbox::sqlite::begin(pool).await?;
    outbox::publish(&mut tx, "q", &n).await?;
    tx.commit().await?;
    settled(pool).await?;
    stopped(running).await
}

/// Waits until every message of the queue is settled.
async fn settled(pool: &SqlitePool) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE / 2;
    while count(pool, "queue = 'q'").await.is_none_or(|left| left > 0) {
        if Instant::now() > end {
            let left = count(pool, "queue = 'q'").await;
            return Err(anyhow::anyhow!("{left:?} rows").context(Stuck("not settled in time")));
        }
        sleep(SOON).await;
    }
    Ok(())
}

async fn stopped(running: RunningApp) -> anyhow::Result<()> {
    running.stop().await.context(Stuck("the drain failed"))
}

/// Rows of which this holds. `None` if they cannot be read just now.
async fn count(pool: &SqlitePool, which: &str) -> Option<i64> {
    let sql = AssertSqlSafe(format!("SELECT count(*) FROM outbox WHERE {which}"));
    sqlx::query_scalar(sql).fetch_one(pool).await.ok()
}

/// Until every message of the queue is settled.
async fn work(pool: &SqlitePool, other: &Other, flow: &str) -> anyhow::Result<()> {
    let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let drains = flow == "drain";
    let handler = {
        let (flow, other, begun, gate) =
            (flow.to_owned(), other.clone(), Arc::clone(&begun), Arc::clone(&gate));
        move |context: Context| {
            let (flow, other) = (flow.clone(), other.clone());
            let (begun, gate) = (Arc::clone(&begun), Arc::clone(&gate));
            async move {
                if drains {
                    begun.notify_one();
                    gate.acquire().await?.forget();
                }
                let outcome = handle(flow, context).await;
                other.hold_once().await?;
                outcome
            }
        }
    };
    let subscriber = Subscriber::new("swept", "q", handler)
        .lease_ttl(LEASE)
        .retry(Constant::new(SOON))
        .min_poll(SOON)
        .max_poll(SOON * 10);
    let subscriber = match flow {
        "batch ack" => subscriber.max_workers(5).fetch_batch(5),
        // The others of a claim wait in memory.
        "drain" => subscriber.max_workers(1).fetch_batch(5),
        _ => subscriber,
    };
    let app = App::sqlite(pool.clone()).names(names()).only([subscriber]);
    let mut running = app.start().await?;
    if drains {
        let drains = async {
            let begins = timeout(PATIENCE / 2, begun.notified()).await;
            begins.context(Stuck("no handler has begun"))?;
            let (drained, ()) = tokio::join!(stopped(running), async { gate.add_permits(100) });
            drained
        };
        let (drained, still) = standing_still(async || {}, drains).await;
        drained?;
        // What ran out while nothing ran here is nobody's.
        let now = "unixepoch('subsec') * 1000000";
        let live = format!("acquired_at > {now} - {}", LEASE.as_micros());
        let leased = if still < LEASE / 2 { "acquired_token IS NOT NULL" } else { &live };
        let held = count(pool, leased).await;
        let left = || anyhow::anyhow!("{held:?}").context(Stuck("leases are left behind"));
        (held == Some(0)).then_some(()).ok_or_else(left)?;
        running = app.start().await?;
    }
    settled(pool).await?;
    stopped(running).await
}

/// True when it is asked for the first time.
fn is_first(n: i64) -> bool {
    static SEEN: Mutex<BTreeSet<i64>> = Mutex::new(BTreeSet::new());
    SEEN.lock().is_ok_and(|mut seen| seen.insert(n))
}

async fn handle(flow: String, context: Context) -> anyhow::Result<Outcome> {
    let n: i64 = context.decode()?;
    match &*flow {
        "retry" if context.attempts() == 0 => anyhow::bail!("at first"),
        "dead letter" => return Ok(Outcome::reject("swept")),
        "snooze" if is_first(n) => return Ok(Outcome::Snooze(SOON)),
        "ack and publish" => context.publisher().collect(Outgoing::new("receipts", &n))?,
        "extend" => sleep(LEASE * 6 / 10).await,
        "transaction" => {
            let tx = Tx::<Sqlite>::from_context(&context).await;
            let mut tx = tx.map_err(|why| anyhow::anyhow!("{why:?}"))?;
            sqlx::query("INSERT INTO done VALUES (?)").bind(n).execute(&mut *tx).await?;
            outbox::publish(&mut tx, "receipts", &n).await?;
        }
        _ => {}
    }
    println!("handled {n}");
    Ok(Outcome::Ack)
}
