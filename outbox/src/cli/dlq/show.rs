//! `dlq show`: one letter with all that is in it.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Value, json};

use super::super::output::printable;
use super::shown::{age, letter, time};
use super::{Context, DeadLetters, Done, Trouble};
use crate::dlq::Opened;

/// Show a dead letter: why it failed, its headers, its payload.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// Its id.
    id: i64,
    /// How many bytes of the payload are shown.
    #[arg(long, default_value_t = 65_536, value_name = "BYTES")]
    max_payload: usize,
}

impl Show {
    pub(super) async fn run(
        self,
        context: &Context,
        letters: &DeadLetters,
    ) -> Result<Done, Trouble> {
        let Some(opened) = letters.open(self.id).await? else {
            return Err(Trouble::Failed(format!("there is no dead letter {}", self.id).into()));
        };
        let now = letters.now().await?;
        let payload = Payload::of(&opened, self.max_payload);
        let mut value = letter(&opened.letter);
        let headers = opened.raw_headers().map(|text| {
            serde_json::from_str::<Value>(text).unwrap_or_else(|_| Value::String(text.into()))
        });
        value["headers"] = json!(headers);
        value["payload_text"] = json!(payload.text);
        value["payload_hex"] = json!(payload.hex);
        value["payload_cut"] = json!(payload.cut);
        context.out.result(&json!({ "letter": value }), || {
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
            let headers = headers.as_ref().map(|value| match value {
                Value::Object(all) => {
                    let line = |(name, value): (&String, &Value)| format!("{name}: {value}");
                    all.iter().map(line).collect::<Vec<_>>().join("\n")
                }
                broken => format!("no JSON object: {broken}"),
            });
            block(&mut text, "headers", &headers.unwrap_or_default());
            let title = format!("payload, {} bytes", one.payload_bytes);
            block(&mut text, &title, &payload.shown());
            text
        });
        Ok(Done::Good)
    }
}

/// Lines under a title, or nothing. What could command the terminal is escaped line by
/// line, so that the lines stay.
fn block(text: &mut String, title: &str, lines: &str) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}:");
    for line in lines.lines() {
        let _ = writeln!(text, "  {}", printable(line));
    }
}

/// The payload as it can be shown: decoded if it is text, never run.
struct Payload {
    text: Option<String>,
    /// Of bytes that are no text.
    hex: Option<String>,
    cut: bool,
}

impl Payload {
    fn of(opened: &Opened, most: usize) -> Self {
        let cut = opened.payload.len() > most;
        let bytes = &opened.payload[..opened.payload.len().min(most)];
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => Some(text),
            // A character that was cut.
            Err(error) if cut && error.error_len().is_none() => {
                std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
            }
            Err(_) => None,
        };
        let hex = || {
            bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        Self { text: text.map(str::to_owned), hex: text.is_none().then(hex), cut }
    }

    /// JSON is laid out.
    fn shown(&self) -> String {
        let mut shown = match (&self.text, &self.hex) {
            (Some(text), _) => match serde_json::from_str::<Value>(text) {
                Ok(value) => format!("{value:#}"),
                Err(_) => text.clone(),
            },
            (None, hex) => hex.clone().unwrap_or_default(),
        };
        if self.cut {
            shown.push_str("\n… (more: --max-payload)");
        }
        shown
    }
}
