//! `peek`: the first rows of a queue.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::output::printable;
use super::{Context, Done, Trouble, queues};
use crate::ops::{PeekOptions, Peeked, age};

/// How many characters of a text are shown unless all are asked for.
const SHOWN: usize = 1000;

/// Show the first rows of a queue, in the order in which they are claimed.
///
/// Nothing is claimed, nothing is changed, and nothing in a payload is executed.
#[derive(Debug, Args)]
pub(super) struct Peek {
    /// The queue.
    queue: String,
    /// Show at most this many rows.
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// Show payloads and headers in full; otherwise only 4 KiB of a payload are read.
    #[arg(long)]
    full: bool,
}

/// The answer as JSON. In a `Value`, numbers would lose digits.
#[derive(Serialize)]
struct Answer<'a> {
    queue: &'a str,
    rows: &'a [Peeked],
}

impl Peek {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let options = PeekOptions::default().rows(self.rows);
        let options = if self.full { options.full() } else { options };
        let operator = context.operator()?;
        let rows = operator.peek(&self.queue, &options).await?;
        let value = Answer { queue: &self.queue, rows: &rows };
        context.out.result(&value, || {
            if rows.is_empty() {
                return format!("the queue {} has no rows", printable(&self.queue));
            }
            rows.iter().map(|row| self.text(context, row)).collect()
        });
        if rows.is_empty() {
            queues::doubt(context, &operator, std::slice::from_ref(&self.queue)).await;
        }
        Ok(Done::Good)
    }

    fn text(&self, context: &Context, row: &Peeked) -> String {
        let Peeked { id, due_at, created_at, seen_at, deliveries, attempts, .. } = row;
        let ago = |time| age(seen_at.duration_since(time).unwrap_or_default());
        let due = match due_at.duration_since(*seen_at) {
            Ok(wait) if !wait.is_zero() => format!("due in {}", age(wait)),
            _ => format!("due for {}", ago(*due_at)),
        };
        let mut text = context.out.strong(&format!("row {id}"));
        let published = ago(*created_at);
        let _ = write!(text, ": {due}, published {published} ago");
        let _ = write!(text, ", deliveries: {deliveries}, failed: {attempts}");
        if let Some(at) = row.leased_at {
            let _ = write!(text, ", leased for {}", ago(at));
        }
        if let Some(name) = &row.timer_id {
            let _ = write!(text, ", timer {}", printable(name));
        }
        let _ = writeln!(text, "\n  headers: {}", self.cut(&row.headers.to_string(), false));
        let payload = self.cut(&row.payload.text(), row.payload_cut);
        let _ = writeln!(text, "  payload ({} bytes): {payload}", row.payload_bytes);
        text
    }

    fn cut(&self, text: &str, goes_on: bool) -> String {
        let end = text.char_indices().nth(SHOWN).filter(|_| !self.full).map(|(end, _)| end);
        let shown = printable(&text[..end.unwrap_or(text.len())]).into_owned();
        if goes_on || end.is_some() { shown + " … (--full shows all)" } else { shown }
    }
}
