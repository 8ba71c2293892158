//! `dlq list`: letters, the newest first.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::selection::Selection;
use super::shown::{age, line};
use super::{Context, DeadLetters, Done, Trouble};
use crate::dlq::{Cursor, Status};

/// List dead letters, the newest first.
#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    selection: Selection,
    /// Only letters with this status. With --queue, resolved and ignored ones have to be searched
    /// for: no index covers those of a queue.
    #[arg(long, value_enum, default_value_t)]
    status: Lives,
    /// List at most this many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// The page that begins here; the page before it names the cursor.
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(super) enum Lives {
    #[default]
    Failed,
    Resolved,
    Ignored,
    All,
}

impl Lives {
    pub(super) fn status(self) -> Option<Status> {
        match self {
            Self::Failed => Some(Status::Failed),
            Self::Resolved => Some(Status::Resolved),
            Self::Ignored => Some(Status::Ignored),
            Self::All => None,
        }
    }
}

impl List {
    pub(super) async fn run(
        self,
        context: &Context,
        letters: &DeadLetters,
    ) -> Result<Done, Trouble> {
        let mut filter = self.selection.filter(letters).await?;
        if let Some(status) = self.status.status() {
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
            context.out.list(head, page.letters.iter().map(row))
        });
        if let Some(next) = next {
            context.out.note(&format!("there are more: --after {next}"));
        }
        Ok(Done::Good)
    }
}
