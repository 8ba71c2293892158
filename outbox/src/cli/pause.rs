//! `pause`: nobody claims from a queue for a while.

use clap::Args;
use serde_json::json;

use super::output::printable;
use super::{Context, Done, Trouble, queues};

/// Pause queues, for all processes, until they are resumed.
///
/// Claims that begin later take no rows of them. On PostgreSQL it waits up to a second for claims
/// that are under way. What was claimed before is finished. Publishing goes on.
#[derive(Debug, Args)]
pub(super) struct Pause {
    /// The queues.
    #[arg(required = true)]
    queues: Vec<String>,
    /// Why they are paused, for whoever sees it.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl Pause {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let operator = context.operator()?;
        let names: Vec<&str> = self.queues.iter().map(String::as_str).collect();
        let paused = operator.pause(&names, self.note.as_deref()).await?;
        context.out.result(&json!({ "paused": paused }), || {
            let lines = paused.iter().map(|one| {
                let before = if one.was_paused { " (it was before)" } else { "" };
                let since = crate::ops::rfc3339(one.paused_at);
                format!("{} is paused since {since}{before}\n", printable(&one.queue))
            });
            lines.collect()
        });
        queues::doubt(context, &operator, &self.queues).await;
        Ok(Done::Good)
    }
}
