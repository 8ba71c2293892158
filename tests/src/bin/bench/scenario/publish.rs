//! `publish`: a transaction a message, by 1, 8 and 32 clients, while consumers have
//! more to do than they can. Bar: 0.95 of a plain INSERT of the same row without
//! NOTIFY, in a transaction of its own.
//!
//! On both sides the same app consumes the same queue: ten handlers of 5 ms and
//! 10,000 messages waiting, so that they are busy the whole time, nobody has to be
//! woken, and little of the processor is theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use outbox::{Publisher, subscriber};
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::task::JoinSet;

use super::drain::Order;
use crate::bench::Bench;
use crate::ceiling;
use crate::db::{Pg, QUEUE, names};
use crate::meter::{Figures, Meter};
use crate::report::Report;
use crate::rounds;

const WAITING: u64 = 10_000;

#[subscriber("bench")]
pub async fn busy(_order: Order) {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// How one client publishes one message.
#[derive(Clone)]
pub enum Way {
    Framework(Publisher),
    Plain,
}

impl Way {
    pub fn framework() -> Self {
        Self::Framework(Publisher::new(names()))
    }

    pub async fn publish(&self, connection: &mut PgConnection, order: &Order) -> Result<()> {
        let mut tx = connection.begin().await?;
        match self {
            Self::Framework(publisher) => {
                publisher.publish(&mut tx, QUEUE, order).await?;
            }
            Self::Plain => ceiling::publish::insert(&mut tx, order).await?,
        }
        Ok(tx.commit().await?)
    }
}

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let pg = bench.postgres().await?;
    let mut reports = Vec::new();
    for (clients, own) in [(1, 8_000), (8, 16_000), (32, 16_000)] {
        let messages = bench.messages(own);
        eprintln!("  {clients} clients");
        let ours = || measured(&pg, clients, messages, Way::framework());
        let theirs = || measured(&pg, clients, messages, Way::Plain);
        let both = rounds::many(bench.args.rounds * 3, ours, theirs).await?;
        reports.push(both.report(&format!("publish/{clients}"), "postgres", 0.95));
    }
    Ok(reports)
}

async fn measured(pg: &Pg, clients: u64, messages: u64, way: Way) -> Result<Figures> {
    pg.fill(WAITING).await?;
    let running = pg.app().only([busy::subscriber()]).start().await?;
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(pg.options.connect().await?);
    }
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    let mut publishing = JoinSet::new();
    for mut connection in connections {
        let (way, next) = (way.clone(), Arc::clone(&next));
        publishing.spawn(async move {
            let mut latencies = Vec::new();
            while let n @ 0.. = next.fetch_add(1, Ordering::Relaxed)
                && n < messages
            {
                let order = Order::nth(n);
                let sent = Instant::now();
                way.publish(&mut connection, &order).await?;
                latencies.push(sent.elapsed());
            }
            connection.close().await?;
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(client) = publishing.join_next().await {
        latencies.extend(client??);
    }
    let took = begun.elapsed();
    let still_busy = pg.left().await? > 0;
    running.stop().await?;
    ensure!(still_busy, "the consumers ran out of messages: fewer --messages");
    // What else was counted is the consumers' too.
    let figures = meter.end(messages, Some(took)).await?;
    Ok(Figures { latencies, statements: None, wal_bytes: None, hot_ratio: None, ..figures })
}
