//! `drain --store sqlite`: a full table in a file with write-ahead log, a typed
//! handler that does nothing, all settings at their defaults. Bar: 0.8 of the bare
//! loop over the same file.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::drain::{noop, to_the_end};
use crate::bench::Bench;
use crate::ceiling;
use crate::db::QUEUE;
use crate::file::File;
use crate::meter::{Figures, Meter};
use crate::report::Report;
use crate::rounds;

pub async fn run(bench: &Bench) -> Result<Vec<Report>> {
    let messages = bench.messages(100_000);
    let file = File::fresh().await?;
    let both = rounds::against(bench, || ours(&file, messages), || theirs(&file, messages)).await?;
    Ok(vec![both.report("drain", "sqlite", 0.8)])
}

async fn ours(file: &File, messages: u64) -> Result<Figures> {
    file.fill(messages).await?;
    let figures = to_the_end(file.app().only([noop::subscriber()]), None, messages).await?;
    ensure!(file.left().await? == 0, "{QUEUE} is not empty");
    Ok(figures)
}

async fn theirs(file: &File, messages: u64) -> Result<Figures> {
    file.fill(messages).await?;
    let meter = Meter::start(None).await?;
    let begun = Instant::now();
    let handled = ceiling::sqlite::drain((*file.pool.connect_options()).clone()).await?;
    let figures = meter.end(handled, Some(begun.elapsed())).await?;
    ensure!(file.left().await? == 0 && handled == messages, "{QUEUE} is not empty");
    Ok(figures)
}
