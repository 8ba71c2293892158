//! `dlq groups`: the problems that the open letters have.

use clap::Args;
use serde_json::json;

use super::selection::{Selection, none};
use super::shown::{age, count, letters as many, line};
use super::{Context, Done, Trouble};
use crate::dlq::Problem;

/// Group open letters by what went wrong.
///
/// Letters of one problem have the same queue, kind of error, and message without numbers and ids.
/// Letters that another program wrote are given their fingerprints first.
#[derive(Debug, Args)]
pub(super) struct Groups {
    #[command(flatten)]
    selection: Selection,
    /// List at most this many problems, the largest first.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

impl Groups {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let operator = context.operator()?;
        let letters = &operator.dead_letters();
        let filter = self.selection.filter(letters).await?;
        let groups = letters.groups(&filter, self.limit);
        let groups = context.out.waiting("grouping", groups).await?;
        let now = letters.now().await?;
        let value = json!({ "letters": groups.letters, "problems": groups.count, "groups": groups.problems });
        context.out.result(&value, || {
            let problems = if groups.count == 1 { "problem" } else { "problems" };
            let (letters, number) = (many(groups.letters), count(groups.count));
            let mut text = format!("{letters}, {number} {problems}\n");
            if !groups.problems.is_empty() {
                let head =
                    ["LETTERS", "FINGERPRINT", "QUEUE", "KIND", "FIRST", "LAST", "NEWEST", "ERROR"];
                let row = |one: &Problem| {
                    [
                        count(one.letters),
                        one.fingerprint.clone(),
                        one.queue.clone(),
                        one.error_kind.clone().unwrap_or_else(|| one.failure_reason.clone()),
                        age(now, one.first_seen) + " ago",
                        age(now, one.last_seen) + " ago",
                        one.newest.to_string(),
                        line(one.sample.as_deref(), 60),
                    ]
                };
                text += &context.out.table(head, groups.problems.iter().map(row), Some(1));
            }
            text
        });
        if groups.problems.is_empty() {
            none(context, &operator, &filter).await;
        }
        Ok(Done::Good)
    }
}
