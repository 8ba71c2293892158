//! `bench`: how fast messages go through these tables.

use clap::Args;
use serde_json::json;

use super::confirm::Consent;
use super::interrupted::interrupted;
use super::{Context, Done, Trouble};
use crate::ops::Load;

/// Measure how fast messages go through these tables.
///
/// Publishes messages into a queue of its own in the real table, handles them with a handler that
/// does nothing, and deletes what is left, even when it is interrupted. It puts load on the
/// server: other programs get slower meanwhile.
#[derive(Debug, Args)]
pub(super) struct Bench {
    /// How many messages.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    messages: usize,
    /// Bytes of each payload.
    #[arg(long, value_name = "BYTES", default_value_t = 100,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=1_048_576))]
    payload: usize,
    #[command(flatten)]
    consent: Consent,
}

impl Bench {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let load = Load { messages: self.messages, payload_bytes: self.payload };
        let bench = context.app.bench(load)?;
        let table = context.operator()?.names().table().to_owned();
        self.consent.to(&format!(
            "{} messages of {} bytes go through the table {table}, in a queue of their own",
            self.messages, self.payload
        ))?;
        let spinner = context.out.spinner("measuring");
        let (signalled, stopped) = (bench.clone(), spinner.clone());
        let watch = tokio::spawn(async move {
            interrupted().await;
            stopped.finish_and_clear();
            signalled.interrupt();
        });
        let measured = bench.run().await;
        watch.abort();
        spinner.finish_and_clear();
        // A run that failed may have left messages, too.
        let deleted = if bench.has_published() { bench.clean_up().await } else { Ok(0) };
        let (measured, deleted) = match (measured, deleted) {
            (Ok(measured), Ok(deleted)) => (measured, deleted),
            (Err(error), Ok(_)) => return Err(error.into()),
            (measured, Err(error)) => {
                let first = measured.err().map(|error| format!("{error}; "));
                let left = format!("messages may be left in the queue {}", bench.queue());
                let told = format!("{}{left}: {error}", first.unwrap_or_default());
                return Err(Trouble::Failed(told.into()));
            }
        };
        let micros = |took: std::time::Duration| took.as_secs_f64() * 1e6;
        let value = json!({
            "messages": self.messages,
            "payload_bytes": self.payload,
            "published_per_second": measured.published_per_second,
            "handled_per_second": measured.handled_per_second,
            "commit_median_seconds": measured.commit_median.as_secs_f64(),
            "commit_max_seconds": measured.commit_max.as_secs_f64(),
            "left_and_deleted": deleted,
        });
        context.out.result(&value, || {
            let lines = [
                [
                    "published".into(),
                    measured.published_per_second.map_or_else(
                        || "not known for so few messages".into(),
                        |rate| format!("{rate:.0} messages a second"),
                    ),
                ],
                ["handled".into(), format!("{:.0} messages a second", measured.handled_per_second)],
                [
                    "a commit".into(),
                    format!(
                        "{:.0} µs, at most {:.0} µs",
                        micros(measured.commit_median),
                        micros(measured.commit_max)
                    ),
                ],
            ];
            context.out.table(["WHAT", "HOW FAST"], lines, None)
        });
        Ok(Done::Good)
    }
}
