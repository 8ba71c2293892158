//! One message at a time, to an app that is idle: from the sending of the publisher's
//! commit to the handler's first line. Against a bare NOTIFY → claim with the same
//! publisher. Bars: the median at most 1.3 times the bare one's, the 99th percentile
//! at most 1.5 times.
//!
//! Not from the commit's answer, though it would make the ratio stricter: the server
//! wakes the reader first, and on a busy machine up to a fifth of the messages was
//! handled before their publisher had the answer. Each round says how many, and what
//! the commit took.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use outbox::{State, subscriber};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::bench::Bench;
use crate::ceiling;
use crate::db::{Pg, QUEUE};
use crate::meter::{Figures, Meter};
use crate::report::{Report, percentile, rounded};

/// Not measured: connections and plans are made by then.
const WARM: u64 = 20;

#[derive(Debug, Serialize, Deserialize)]
pub struct Ping {
    pub n: u64,
}

/// When each message was there.
pub type Seen = mpsc::UnboundedSender<(u64, Instant)>;

#[subscriber("bench")]
pub async fn ping(ping: Ping, State(seen): State<Seen>) {
    let now = Instant::now();
    let _ = seen.send((ping.n, now));
}

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let messages = bench.messages(400);
    let pg = bench.postgres().await?;
    let (mut rounds, mut middle) = (Vec::new(), Vec::new());
    for round in 0..bench.args.rounds {
        let (ours, bare) = if round % 2 == 0 {
            let ours = ours(&pg, messages).await?;
            (ours, bare(&pg, messages).await?)
        } else {
            let bare = bare(&pg, messages).await?;
            (self::ours(&pg, messages).await?, bare)
        };
        let of = |share| {
            Some([percentile(&ours.latencies, share)?, percentile(&bare.latencies, share)?])
        };
        let (p50, p99) = of(0.50).zip(of(0.99)).context("nothing was measured")?;
        eprintln!("  round {round}: p50 {p50:?} ms, p99 {p99:?} ms, ours and bare");
        rounds.push([p50[0] / p50[1], p99[0] / p99[1]]);
        middle.push((p50[0], ours));
    }
    middle.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (_, ours) = middle.swap_remove(middle.len() / 2);
    let ratio = |at: usize| {
        let mut ratios: Vec<_> = rounds.iter().map(|both| both[at]).collect();
        ratios.sort_by(f64::total_cmp);
        Some(rounded(ratios[ratios.len() / 2]))
    };
    // A rate would only say how long it waited in between.
    let report =
        Report { msgs_per_s: None, ratio: ratio(0), ..Report::of("latency", "postgres", &ours) };
    Ok(vec![report.at_most("p50 ratio", ratio(0), 1.3).at_most("p99 ratio", ratio(1), 1.5)])
}

async fn ours(pg: &Pg, messages: u64) -> Result<Figures> {
    let (send, seen) = mpsc::unbounded_channel();
    let running = pg.app().only([ping::subscriber()]).state::<Seen>(send).start().await?;
    let figures = publish_each(pg, messages, seen).await;
    running.stop().await?;
    figures
}

async fn bare(pg: &Pg, messages: u64) -> Result<Figures> {
    by_bare_loop(pg.options.clone(), async |seen| publish_each(pg, messages, seen).await).await
}

/// What is measured while a bare loop reads.
pub async fn by_bare_loop(
    options: PgConnectOptions,
    measured: impl AsyncFnOnce(mpsc::UnboundedReceiver<(u64, Instant)>) -> Result<Figures>,
) -> Result<Figures> {
    let (send, seen) = mpsc::unbounded_channel();
    let handle = move |ping: Ping, now| {
        let _ = send.send((ping.n, now));
    };
    let (stop, stopped) = oneshot::channel();
    let (ready, is_ready) = oneshot::channel();
    let task = tokio::spawn(ceiling::wake::run(options, QUEUE, stopped, ready, handle));
    is_ready.await?;
    let figures = measured(seen).await;
    drop(stop);
    task.await??;
    figures
}

async fn publish_each(
    pg: &Pg,
    messages: u64,
    mut seen: mpsc::UnboundedReceiver<(u64, Instant)>,
) -> Result<Figures> {
    let publisher = outbox::Publisher::new(crate::db::names());
    let mut connection: PgConnection = pg.options.connect().await?;
    let (mut latencies, mut commits, mut before) = (Vec::new(), Vec::new(), 0);
    let meter = Meter::start(Some(&pg.pool)).await?;
    for n in 0..WARM + messages {
        let mut tx = connection.begin().await?;
        publisher.publish(&mut tx, QUEUE, &Ping { n }).await?;
        let sent = Instant::now();
        tx.commit().await?;
        let committed = Instant::now();
        let (_, at) = seen.recv().await.context("the reader is gone")?;
        if n >= WARM {
            latencies.push(at.duration_since(sent));
            commits.push(committed.duration_since(sent));
            before += u64::from(at < committed);
        }
        // Until it is settled, and the app idle again.
        sleep(Duration::from_micros(5_000 + 977 * (n % 7))).await;
    }
    let commit = percentile(&commits, 0.50);
    eprintln!("    commit p50 {commit:?} ms, handled before its answer: {before} of {messages}");
    connection.close().await?;
    let mut figures = meter.end(messages, None).await?;
    figures.latencies = latencies;
    Ok(figures)
}
