//! `stats`: how much lies in each queue, once or again and again.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::sleep;

use super::{Context, Done, Trouble};
use crate::ops::{QueueSample, Rates, Sample, SampleOptions, age};

/// Count what is in the tables, queue by queue.
///
/// Shows waiting, due, leased and retrying rows, for how long the oldest has been due, and open
/// dead letters. Counts stop at a bound, shown as `100000+`.
#[derive(Debug, Args)]
pub(super) struct Stats {
    /// Count these queues only; by default all that have rows or open dead letters, or are
    /// paused.
    queues: Vec<String>,
    /// Read at most this many rows of each queue.
    #[arg(long, value_name = "ROWS", default_value_t = 100_000)]
    bound: u64,
    /// Count everything: this reads the whole table.
    #[arg(long, conflicts_with = "bound")]
    exact: bool,
    /// Show rates as well: the changes within this time, such as `2s`.
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    over: Option<Duration>,
    /// Go on until SIGINT, with rates; with --json one line for each sample.
    #[arg(long, conflicts_with = "over")]
    watch: bool,
    /// The time between two samples of --watch.
    #[arg(long, value_name = "TIME", default_value = "2s", requires = "watch")]
    #[arg(value_parser = interval)]
    interval: Duration,
}

/// Refuses an interval so short that it would only be load.
fn interval(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(1);
    let interval = crate::duration::parse(text)?;
    if interval < least { Err(format!("{text:?} is below {least:?}")) } else { Ok(interval) }
}

/// What is printed of a sample.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    sample: &'a Sample,
    rates: Option<&'a Rates>,
}

impl Stats {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        if self.watch {
            return tokio::select! {
                ended = self.watch(context) => ended,
                _ = tokio::signal::ctrl_c() => Ok(Done::Good),
            };
        }
        let (operator, options) = (context.operator()?, self.options());
        let first = operator.sample(&options);
        let mut sample =
            if self.exact { context.out.waiting("counting", first).await } else { first.await }?;
        let mut rates = None;
        if let Some(over) = self.over {
            let earlier = sample;
            let later = async {
                sleep(over).await;
                operator.sample(&options).await
            };
            sample = context.out.waiting("sampling", later).await?;
            rates = Some(sample.rates_since(&earlier));
        }
        show(context, &sample, rates.as_ref());
        Ok(Done::Good)
    }

    fn options(&self) -> SampleOptions {
        let mut options = SampleOptions::default().of(self.queues.iter().cloned());
        options.bound = (!self.exact).then_some(self.bound);
        options
    }

    async fn watch(&self, context: &Context) -> Result<Done, Trouble> {
        let (operator, options) = (context.operator()?, self.options());
        let mut earlier: Option<Sample> = None;
        loop {
            let sample = operator.sample(&options).await?;
            let rates = earlier.as_ref().map(|earlier| sample.rates_since(earlier));
            if !show_again(context, &sample, rates.as_ref()) {
                return Ok(Done::Good);
            }
            earlier = Some(sample);
            sleep(self.interval).await;
        }
    }
}

fn show(context: &Context, sample: &Sample, rates: Option<&Rates>) -> bool {
    context.out.stream(&Shown { sample, rates }, || text(context, sample, rates))
}

/// Shows a sample; on a terminal, in the place of the one before.
fn show_again(context: &Context, sample: &Sample, rates: Option<&Rates>) -> bool {
    context.out.stream(&Shown { sample, rates }, || {
        let text = text(context, sample, rates);
        let clear = if io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
        format!("{clear}{}\n{text}", crate::ops::rfc3339(sample.at))
    })
}

fn text(context: &Context, sample: &Sample, rates: Option<&Rates>) -> String {
    let head = [
        "QUEUE", "WAITING", "DUE", "LEASED", "RETRYING", "OLDEST", "DEAD", "ROWS/S", "DEAD/S",
        "STATE",
    ];
    let lines = sample.queues.iter().map(|one| line(one, rates));
    let mut text = context.out.table(head, lines, None);
    if sample.queues.is_empty() {
        text = "the tables are empty, and no queue is paused\n".into();
    }
    if sample.more_queues {
        text += "there are more queues; name those you want to see\n";
    }
    if let Some(rates) = rates {
        let _ = writeln!(
            text,
            "published {}{}, ended {}, over {}",
            a_second(rates.published_per_second, false),
            if sample.named { " in all queues" } else { "" },
            a_second(rates.ended_per_second, false),
            age(rates.over)
        );
    }
    text
}

fn line(one: &QueueSample, rates: Option<&Rates>) -> [String; 10] {
    let count = |count: u64| format!("{count}{}", if one.bounded { "+" } else { "" });
    let dead = if one.dead_letters_bounded { "+" } else { "" };
    let rates = rates.and_then(|all| all.queues.iter().find(|it| it.queue == one.queue));
    let shown = |of: Option<Option<f64>>| of.map_or_else(String::new, |rate| a_second(rate, true));
    [
        one.queue.clone(),
        count(one.waiting),
        count(one.due),
        count(one.leased),
        count(one.retrying),
        one.oldest.map_or_else(|| "-".into(), age),
        format!("{}{dead}", one.dead_letters),
        shown(rates.map(|it| it.growth_per_second)),
        shown(rates.map(|it| it.dead_letters_per_second)),
        if one.paused_at.is_some() { "paused".into() } else { String::new() },
    ]
}

/// A rate that cannot be known is shown as `?`.
fn a_second(rate: Option<f64>, change: bool) -> String {
    match rate {
        Some(rate) if change => format!("{rate:+.1}"),
        Some(rate) => format!("{rate:.1}/s"),
        None => "?".into(),
    }
}
