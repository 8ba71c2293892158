//! `publish --store sqlite`: a transaction a message, by 1 and 8 clients, while
//! consumers have more to do than they can. Bar: 0.8 of a plain INSERT of the same
//! row, in a transaction of its own.
//!
//! As on PostgreSQL, the same app consumes on both sides: ten handlers of 5 ms and
//! 20,000 messages waiting. A file has one writer, so more clients wait and no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use outbox::Publisher;
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnection, SqlitePoolOptions};
use tokio::task::JoinSet;

use super::drain::Order;
use super::publish::busy;
use crate::bench::Bench;
use crate::ceiling;
use crate::db::{QUEUE, names};
use crate::file::File;
use crate::meter::{Figures, Meter};
use crate::report::Report;
use crate::rounds;

const WAITING: u64 = 20_000;

/// How one client publishes one message: with the framework, or without.
type Way = Option<Publisher>;

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let file = File::fresh().await?;
    let messages = bench.messages(20_000);
    let mut reports = Vec::new();
    for clients in [1, 8] {
        eprintln!("  {clients} clients");
        let ours = || measured(&file, clients, messages, Some(Publisher::new(names())));
        let theirs = || measured(&file, clients, messages, None);
        let both = rounds::against(bench, ours, theirs).await?;
        reports.push(both.report(&format!("publish/{clients}"), "sqlite", 0.8));
    }
    Ok(reports)
}

async fn publish(way: &Way, connection: &mut SqliteConnection, order: &Order) -> Result<()> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    match way {
        Some(publisher) => {
            publisher.publish(&mut tx, QUEUE, order).await?;
        }
        None => ceiling::sqlite::insert(&mut tx, order).await?,
    }
    Ok(tx.commit().await?)
}

async fn measured(file: &File, clients: u32, messages: u64, way: Way) -> Result<Figures> {
    file.fill(WAITING).await?;
    let running = file.app().only([busy::subscriber()]).start().await?;
    let options = (*file.pool.connect_options()).clone();
    let pool = SqlitePoolOptions::new().max_connections(clients).connect_with(options).await?;
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(pool.acquire().await?);
    }
    let meter = Meter::start(None).await?;
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
                let sent = Instant::now();
                publish(&way, &mut connection, &Order::nth(n)).await?;
                latencies.push(sent.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(client) = publishing.join_next().await {
        latencies.extend(client??);
    }
    let took = begun.elapsed();
    let still_busy = file.left().await? > 0;
    pool.close().await;
    running.stop().await?;
    ensure!(still_busy, "the consumers ran out of messages: fewer --messages");
    Ok(Figures { latencies, ..meter.end(messages, Some(took)).await? })
}
