//! `dlq show`: one letter with all that is in it.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::output::printable;
use super::shown::{age, time};
use super::{Context, Done, Trouble};
use crate::ops::{Document, Payload};

/// Show a dead letter: why it failed, its headers, its payload.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The id of the letter.
    id: i64,
    /// Show at most this many bytes of the payload.
    #[arg(long, default_value_t = 65_536, value_name = "BYTES")]
    max_payload: usize,
}

/// The answer as JSON. In a `Value`, numbers would lose digits.
#[derive(Serialize)]
struct Answer<'a> {
    letter: Opened<'a>,
}

#[derive(Serialize)]
struct Opened<'a> {
    #[serde(flatten)]
    columns: Value,
    headers: &'a Option<Document>,
    payload: &'a Payload,
    payload_cut: bool,
}

impl Show {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let letters = &context.letters()?;
        let Some(opened) = letters.show(self.id).await? else {
            return Err(Trouble::Failed(format!("there is no dead letter {}", self.id).into()));
        };
        let now = letters.now().await?;
        let first = &opened.payload[..opened.payload.len().min(self.max_payload)];
        let cut = first.len() < opened.payload.len();
        let payload = Payload::of(first, opened.letter.payload_bytes);
        let headers = opened.raw_headers();
        let headers =
            headers.map(|text| Document::of(text).unwrap_or_else(|| Document::text(text)));
        let (columns, headers, payload) = (json!(opened.letter), &headers, &payload);
        let value = Answer { letter: Opened { columns, headers, payload, payload_cut: cut } };
        context.out.result(&value, || {
            let mut text = String::new();
            let mut field = |name: &str, value: Option<String>| {
                if let Some(value) = value {
                    let name = context.out.strong(&format!("{name:<14}"));
                    let _ = writeln!(text, "{name} {}", printable(&value));
                }
            };
            let one = &opened.letter;
            field("letter", Some(one.id.to_string()));
            field("status", Some(one.status.to_string()));
            field("queue", Some(one.queue.clone()));
            field(
                "failed",
                Some(format!("{} ({} ago)", time(one.failed_at), age(now, one.failed_at))),
            );
            field("reason", Some(one.failure_reason.clone()));
            field("kind", one.error_kind.clone());
            field("fingerprint", one.fingerprint.clone());
            field("published", Some(time(one.created_at)));
            field("row was", Some(one.original_id.to_string()));
            field("deliveries", Some(one.deliveries_count.to_string()));
            field("timer", one.timer_id.clone());
            field("replays", (one.replays > 0).then(|| one.replays.to_string()));
            field("closed", one.resolved_at.map(time));
            field("replayed as", one.replayed_id.map(|id| format!("row {id}")));
            field("note", one.note.clone());
            block(&mut text, "error", one.last_exception.as_deref().unwrap_or_default());
            let headers = headers.as_ref().map(|json| match json.entries() {
                Some(all) => {
                    // A name may hold a line feed.
                    let line = |(name, value): &(String, Document)| {
                        format!("{}: {value}", printable(name))
                    };
                    all.iter().map(line).collect::<Vec<_>>().join("\n")
                }
                None => format!("not a JSON object: {json}"),
            });
            block(&mut text, "headers", &headers.unwrap_or_default());
            let title = format!("payload, {} bytes", one.payload_bytes);
            block(&mut text, &title, &shown(payload, cut));
            text
        });
        Ok(Done::Good)
    }
}

/// Lines under a title, or nothing. Control characters are escaped line by line, so that the lines
/// stay.
fn block(text: &mut String, title: &str, lines: &str) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}:");
    for line in lines.lines() {
        let _ = writeln!(text, "  {}", printable(line));
    }
}

/// The payload as text; JSON with indented lines.
fn shown(payload: &Payload, cut: bool) -> String {
    let text = match payload {
        Payload::Json(json) => format!("{json:#}"),
        other => other.text(),
    };
    if cut { text + "\n… (more: --max-payload)" } else { text }
}
