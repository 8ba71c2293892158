//! 1,000 messages a statement, a transaction each, by one client; nobody consumes.
//! Bar: 0.95 of one `INSERT … SELECT FROM unnest` of the same rows.

use std::time::Instant;

use anyhow::{Result, ensure};
use outbox::{Outgoing, Publisher};
use sqlx::{ConnectOptions as _, Connection as _};

use super::drain::Order;
use crate::bench::Bench;
use crate::ceiling;
use crate::db::{Pg, QUEUE, names};
use crate::meter::{Figures, Meter};
use crate::report::Report;
use crate::rounds;

const BATCH: u64 = 1_000;

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let messages = bench.messages(100_000);
    let pg = bench.postgres().await?;
    let publisher = Publisher::new(names());
    let ours = || measured(&pg, messages, Some(&publisher));
    let both = rounds::against(bench, ours, || measured(&pg, messages, None)).await?;
    Ok(vec![both.report("publish_batch", "postgres", 0.95)])
}

/// By a publisher, or by hand.
async fn measured(pg: &Pg, messages: u64, publisher: Option<&Publisher>) -> Result<Figures> {
    pg.fill(0).await?;
    let mut connection = pg.options.connect().await?;
    let meter = Meter::start(Some(&pg.pool)).await?;
    let begun = Instant::now();
    for first in (0..messages).step_by(usize::try_from(BATCH)?) {
        let orders: Vec<_> = (first..messages.min(first + BATCH)).map(Order::nth).collect();
        let mut tx = connection.begin().await?;
        match publisher {
            Some(publisher) => {
                let all = orders.iter().map(|order| Outgoing::new(QUEUE, order));
                publisher.publish_batch(&mut tx, all).await?;
            }
            None => ceiling::publish::insert_many(&mut tx, &orders).await?,
        }
        tx.commit().await?;
    }
    let took = begun.elapsed();
    connection.close().await?;
    let figures = meter.end(messages, Some(took)).await?;
    ensure!(pg.left().await?.cast_unsigned() == messages, "not all were published");
    Ok(Figures { connections: None, ..figures })
}
