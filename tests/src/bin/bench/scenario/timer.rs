//! 500 timers and 500 retries that fall due over ten seconds, one of each every 20 ms.
//! How late the handler begins, by the database's clock. Against a loop that sleeps
//! until the next due time, with rows that are due at the same moments. Bars: the 99th
//! percentile at most 20 ms late, and none early.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use outbox::retry::{FailedAttempt, RetryStrategy};
use outbox::{Context, Outgoing, State, subscriber};
use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::bench::Bench;
use crate::ceiling;
use crate::db::{Pg, names};
use crate::meter::{Figures, Meter};
use crate::report::{Report, percentile, rounded};

const EVERY: Duration = Duration::from_millis(20);
/// Until then all timers are set, and all retries have failed once.
const FIRST: Duration = Duration::from_secs(4);
const QUEUES: [&str; 2] = ["timers", "retries"];

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Alarm {
    n: u32,
}

impl Alarm {
    fn delay(&self) -> Duration {
        FIRST + EVERY * self.n
    }
}

/// The row, and when its handler began.
type Begun = mpsc::UnboundedSender<(i64, Instant)>;

#[subscriber("timers")]
async fn timer(_alarm: Alarm, context: Context, State(begun): State<Begun>) {
    let _ = begun.send((context.id(), Instant::now()));
}

#[derive(Debug, thiserror::Error)]
#[error("not yet")]
struct NotYet(Alarm);

struct AsAsked;

impl RetryStrategy for AsAsked {
    fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
        failed.error?.error().downcast_ref::<NotYet>().map(|NotYet(alarm)| alarm.delay())
    }
}

#[subscriber("retries", retry = AsAsked)]
async fn retried(alarm: Alarm, context: Context, State(begun): State<Begun>) -> Result<(), NotYet> {
    if context.attempts() == 0 {
        return Err(NotYet(alarm));
    }
    let _ = begun.send((context.id(), Instant::now()));
    Ok(())
}

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let each = u32::try_from(bench.messages(1000) / 2)?;
    let pg = bench.postgres().await?;
    let (bare, _) = bare(&pg, each).await?;
    let (ours, earliest) = ours(&pg, each).await?;
    let p99 = |figures: &Figures| percentile(&figures.latencies, 0.99);
    eprintln!("  late p99: ours {:?} ms, bare {:?} ms", p99(&ours), p99(&bare));
    let report = Report {
        msgs_per_s: None,
        ratio: p99(&ours).zip(p99(&bare)).map(|(ours, bare)| rounded(ours / bare)),
        ..Report::of("timer", "postgres", &ours)
    };
    let (late, earliest) = (report.p99_ms, Some(rounded(earliest * 1e3)));
    Ok(vec![report.at_most("p99_ms", late, 20.0).at_least("the earliest, ms late", earliest, 0.0)])
}

async fn ours(pg: &Pg, each: u32) -> Result<(Figures, f64)> {
    let (send, mut begun) = mpsc::unbounded_channel();
    let subscribers = [timer::subscriber(), retried::subscriber()];
    let running = pg.app().only(subscribers).state::<Begun>(send).start().await?;
    let meter = Meter::start(Some(&pg.pool)).await?;
    set(pg, each, Duration::ZERO).await?;
    let late = lateness(pg, each, 1, &mut begun).await?;
    running.stop().await?;
    figures(meter, &late).await
}

async fn bare(pg: &Pg, each: u32) -> Result<(Figures, f64)> {
    let (send, mut begun) = mpsc::unbounded_channel();
    let meter = Meter::start(Some(&pg.pool)).await?;
    // To this loop all rows are timers.
    set(pg, each, FIRST).await?;
    let handle = |id, at| {
        let _ = send.send((id, at));
    };
    let loop_ = ceiling::due::run(&pg.options, &QUEUES, handle);
    let ((), late) = tokio::try_join!(loop_, lateness(pg, each, 0, &mut begun))?;
    figures(meter, &late).await
}

/// Publishes all; of the retries the first run is due after `first`.
async fn set(pg: &Pg, each: u32, first: Duration) -> Result<()> {
    let publisher = outbox::Publisher::new(names());
    let mut tx = pg.pool.begin().await?;
    let timers = (0..each).map(|n| {
        let alarm = Alarm { n };
        Outgoing::new(QUEUES[0], &alarm).delay(alarm.delay()).timer_id(format!("timer-{n}"))
    });
    let retries = (0..each).map(|n| {
        let alarm = Alarm { n };
        let delay = if first.is_zero() { first } else { alarm.delay() };
        Outgoing::new(QUEUES[1], &alarm).delay(delay)
    });
    publisher.publish_batch(&mut tx, timers.chain(retries)).await?;
    Ok(tx.commit().await?)
}

/// In seconds, of each row, by the database's clock.
async fn lateness(
    pg: &Pg,
    each: u32,
    attempts: i64,
    begun: &mut mpsc::UnboundedReceiver<(i64, Instant)>,
) -> Result<Vec<f64>> {
    sleep(FIRST / 2).await;
    let sql = "SELECT id, (extract(epoch FROM next_attempt_at) * 1000000)::bigint FROM outbox
        WHERE queue = $1 OR attempts_count = $2";
    let rows = sqlx::query(sql).bind(QUEUES[0]).bind(attempts).fetch_all(&pg.pool).await?;
    let due: HashMap<i64, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    ensure!(due.len() == 2 * each as usize, "{} rows wait for their time", due.len());
    let (ours, theirs) = clocks(pg).await?;
    let mut late = Vec::with_capacity(due.len());
    while late.len() < due.len() {
        let (id, at) = begun.recv().await.context("the handlers are gone")?;
        let since = at.saturating_duration_since(ours).as_secs_f64();
        late.push(theirs + since - due[&id] as f64 / 1e6);
    }
    Ok(late)
}

/// A moment of ours with the database's time, in seconds: right to half a round trip, of
/// which this takes the shortest.
async fn clocks(pg: &Pg) -> Result<(Instant, f64)> {
    let (mut best, mut clocks) = (Duration::MAX, (Instant::now(), 0.0));
    for _ in 0..20 {
        let asked = Instant::now();
        let theirs: i64 =
            sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
                .fetch_one(&pg.pool)
                .await?;
        let trip = asked.elapsed();
        if trip < best {
            (best, clocks) = (trip, (asked + trip / 2, theirs as f64 / 1e6));
        }
    }
    Ok(clocks)
}

/// And how late the earliest was, in seconds.
async fn figures(meter: Meter<'_>, late: &[f64]) -> Result<(Figures, f64)> {
    let counted = meter.end(late.len() as u64, None).await?;
    let earliest = late.iter().copied().fold(f64::INFINITY, f64::min);
    let latencies = late.iter().map(|late| Duration::from_secs_f64(late.max(0.0))).collect();
    Ok((Figures { latencies, ..counted }, earliest))
}
