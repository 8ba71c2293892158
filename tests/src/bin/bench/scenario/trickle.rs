//! Twenty messages a second for half a minute, then a minute of nothing. Against a
//! bare loop, which needs a claim and a delete a message. Bars: two statements a
//! message at most beyond the publish, and six a minute when idle.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use outbox::App;
use outbox_tests::wire::Wire;
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::mpsc;
use tokio::time::{interval, sleep};

use super::latency::{Ping, Seen, by_bare_loop, ping};
use crate::bench::Bench;
use crate::db::{Pg, QUEUE, names};
use crate::meter::{Figures, Meter};
use crate::report::{Report, rounded};

const EVERY: Duration = Duration::from_millis(50);
/// The waits between polls are at their longest by then.
const CALM: Duration = Duration::from_secs(30);
const IDLE: Duration = Duration::from_secs(60);

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let messages = bench.messages(600);
    let pg = bench.postgres().await?;
    let bare = bare(&pg, messages).await?;
    let wire = Wire::before(&pg.options).await;
    let (send, mut seen) = mpsc::unbounded_channel();
    let running = app(&wire).only([ping::subscriber()]).state::<Seen>(send).start().await?;
    let ours = publish_steadily(&pg, messages, &wire, &mut seen).await?;
    sleep(CALM).await;
    let before = wire.counts().statements();
    sleep(IDLE).await;
    let idle = wire.counts().statements() - before;
    running.stop().await?;
    let each =
        |figures: &Figures| figures.statements.map(|all| rounded(all as f64 / messages as f64));
    eprintln!(
        "  statements a message: ours {:?}, bare {:?}; idle {idle} a minute",
        each(&ours),
        each(&bare)
    );
    let report = Report {
        msgs_per_s: None,
        ratio: each(&ours).zip(each(&bare)).map(|(ours, bare)| rounded(ours / bare)),
        ..Report::of("trickle", "postgres", &ours)
    };
    let report = report.at_most("statements_per_msg", each(&ours), 2.0);
    Ok(vec![report.at_most("idle statements a minute", Some(idle as f64), 6.0)])
}

/// An app whose statements are counted.
pub fn app(wire: &Wire) -> App {
    App::postgres(PgPoolOptions::new().connect_lazy_with(wire.options.clone())).names(names())
}

async fn bare(pg: &Pg, messages: u64) -> Result<Figures> {
    let wire = Wire::before(&pg.options).await;
    let measured = async |mut seen| publish_steadily(pg, messages, &wire, &mut seen).await;
    by_bare_loop(wire.options.clone(), measured).await
}

/// The figures' statements are those that went through the wire.
async fn publish_steadily(
    pg: &Pg,
    messages: u64,
    wire: &Wire,
    seen: &mut mpsc::UnboundedReceiver<(u64, Instant)>,
) -> Result<Figures> {
    let publisher = outbox::Publisher::new(names());
    let mut connection: PgConnection = pg.options.connect().await?;
    // Of the start.
    sleep(Duration::from_secs(1)).await;
    let (meter, before) = (Meter::start(Some(&pg.pool)).await?, wire.counts().statements());
    let (mut latencies, mut ticks) = (Vec::new(), interval(EVERY));
    for n in 0..messages {
        ticks.tick().await;
        let mut tx = connection.begin().await?;
        publisher.publish(&mut tx, QUEUE, &Ping { n }).await?;
        tx.commit().await?;
        let committed = Instant::now();
        let (_, at) = seen.recv().await.context("the reader is gone")?;
        latencies.push(at.saturating_duration_since(committed));
    }
    connection.close().await?;
    // The last ones are settled by then.
    sleep(EVERY).await;
    let statements = (wire.counts().statements() - before).try_into()?;
    let figures = meter.end(messages, None).await?;
    Ok(Figures { latencies, statements: Some(statements), ..figures })
}
