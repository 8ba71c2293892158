//! `dlq list`: letters, the newest first.

use clap::Args;
use serde_json::json;

use super::selection::{Selection, none};
use super::shown::{age, line};
use super::{Context, Done, Trouble};
use crate::dlq::Cursor;

/// List dead letters, the newest first.
#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    selection: Selection,
    /// Only letters with this status. With --queue, resolved and ignored ones have to be searched
    /// for: no index covers those of a queue.
    #[arg(long, default_value = "failed", value_parser = ["failed", "resolved", "ignored", "all"])]
    status: String,
    /// List at most this many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// The page that begins here; the page before it names the cursor.
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
}

impl List {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let operator = context.operator()?;
        let letters = &operator.dead_letters();
        let mut filter = self.selection.filter(letters).await?;
        // `all` is no status.
        if let Ok(status) = self.status.parse() {
            filter = filter.status(status);
        }
        let page = letters.list(&filter, self.after, self.limit).await?;
        let now = letters.now().await?;
        let next = page.next.map(|next| next.to_string());
        context.out.result(&json!({ "letters": page.letters, "next": next }), || {
            if page.letters.is_empty() {
                return "no letters".into();
            }
            let head =
                ["ID", "FAILED", "QUEUE", "STATUS", "REASON", "KIND", "FINGERPRINT", "ERROR"];
            let row = |letter: &crate::dlq::Letter| {
                [
                    letter.id.to_string(),
                    age(now, letter.failed_at) + " ago",
                    letter.queue.clone(),
                    letter.status.to_string(),
                    letter.failure_reason.clone(),
                    letter.error_kind.clone().unwrap_or_default(),
                    letter.fingerprint.clone().unwrap_or_default(),
                    line(letter.last_exception.as_deref().or(letter.note.as_deref()), 60),
                ]
            };
            context.out.table(head, page.letters.iter().map(row), Some(1))
        });
        if page.letters.is_empty() {
            none(context, &operator, &filter).await;
        }
        if let Some(next) = next {
            context.out.note(&format!("there are more: --after {next}"));
        }
        Ok(Done::Good)
    }
}
