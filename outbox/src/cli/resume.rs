//! `resume`: the end of a pause.

use clap::Args;
use serde_json::json;

use super::confirm::Consent;
use super::output::printable;
use super::{Context, Done, Trouble, queues};
use crate::ops::Pause;

/// End the pauses of queues.
///
/// Wakes the processes that read them. On PostgreSQL with OUTBOX_NOTIFY=never, they find out at
/// their next poll.
#[derive(Debug, Args)]
pub(super) struct Resume {
    /// The queues.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    queues: Vec<String>,
    /// All queues that are paused.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    consent: Consent,
}

impl Resume {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let operator = context.operator()?;
        let mut names = self.queues;
        if self.all {
            let paused = operator.paused().await?;
            if !paused.is_empty() {
                self.consent.to(&told(&paused))?;
            }
            names = paused.into_iter().map(|one| one.queue).collect();
        }
        let asked: Vec<&str> = names.iter().map(String::as_str).collect();
        let resumed = operator.resume(&asked).await?;
        context.out.result(&json!({ "resumed": resumed }), || {
            if resumed.is_empty() {
                return "no queue is paused".into();
            }
            let lines = resumed.iter().map(|one| {
                let what = if one.was_paused { "is resumed" } else { "was not paused" };
                format!("{} {what}\n", printable(&one.queue))
            });
            lines.collect()
        });
        let in_vain = resumed.into_iter().filter(|one| !one.was_paused).map(|one| one.queue);
        queues::doubt(context, &operator, &in_vain.collect::<Vec<_>>()).await;
        Ok(Done::Good)
    }
}

/// The question. It has the notes, which say why each queue is paused and end with the pause.
fn told(paused: &[Pause]) -> String {
    let each = paused.iter().map(|Pause { queue, note, .. }| match note {
        Some(note) => format!("{queue} ({note})"),
        None => queue.clone(),
    });
    format!("end the pauses of {}", each.collect::<Vec<_>>().join(", "))
}
