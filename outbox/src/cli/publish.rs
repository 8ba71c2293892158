//! `publish`: a message by hand.

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{Context, Done, Trouble};
use crate::message::codec;
use crate::publish::{MAX_PAYLOAD, Outgoing, Published, TimerConflict};

/// Publish a message, in a transaction of its own.
///
/// This is for operators. Programs publish in the transaction of the change that they report.
#[derive(Debug, Args)]
pub(super) struct Publish {
    /// The queue.
    queue: String,
    /// The payload, a JSON document: '{"id": 7}'. `-` reads it from standard input.
    #[arg(
        required_unless_present = "file",
        conflicts_with = "file",
        allow_negative_numbers = true
    )]
    payload: Option<String>,
    /// Read the payload from a file.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Publish the bytes as they are, whether or not they are JSON.
    #[arg(long)]
    raw: bool,
    /// How the bytes are encoded, such as `text/plain`; implies --raw.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// A header; may be repeated.
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Make the message due after this time, such as `5m`.
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    delay: Option<Duration>,
    /// Let the message end as expired if it is not started in this time.
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    expires_in: Option<Duration>,
    /// A timer name: at most one live row of the queue has it.
    #[arg(long, value_name = "NAME")]
    timer: Option<String>,
    /// If the timer is there and due earlier, move it to the new time, with the new
    /// payload and headers.
    #[arg(long, requires = "timer")]
    extend: bool,
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".into()),
    }
}

impl Publish {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let operator = context.operator()?;
        let published = operator.publish(self.message()?).await?;
        let result = match published {
            Published::Inserted(_) => "inserted",
            Published::Extended(_) => "extended",
            Published::Kept(_) => "kept",
            Published::Duplicate => "duplicate",
        };
        let value = json!({ "published": result, "id": published.id(), "queue": self.queue });
        let queue = super::output::printable(&self.queue);
        context.out.result(&value, || match published {
            Published::Inserted(id) => format!("published row {id} to the queue {queue}"),
            Published::Extended(id) => {
                format!("the timer was there: row {id} has the new time and payload")
            }
            Published::Kept(id) => format!(
                "nothing was published: row {id} has the timer name, and is due at that time or \
                 later (`--extend` moves a timer to a later time only)"
            ),
            Published::Duplicate => "nothing was published: a live row has the timer name \
                                     (`--extend` moves one that no claim holds)"
                .into(),
        });
        let subscribed = context.subscribed();
        if !subscribed.is_empty() && !subscribed.iter().any(|(read, _)| *read == self.queue) {
            context
                .out
                .note(&format!("note: no subscriber of this program reads the queue {queue}"));
        }
        Ok(if published.rows() == 0 { Done::Bad } else { Done::Good })
    }

    fn message(&self) -> Result<Outgoing, Trouble> {
        let payload = self.payload()?;
        let content_type = self.content_type.clone();
        let raw = self.raw || content_type.is_some();
        if !raw {
            json_document(&payload)?;
        }
        let mut message = Outgoing::raw(self.queue.as_str(), payload);
        for (name, value) in &self.headers {
            message = message.header(name, value.as_str());
        }
        if let Some(kind) = content_type.or_else(|| (!raw).then(|| codec::JSON.into())) {
            message = message.content_type(kind);
        }
        if let Some(delay) = self.delay {
            message = message.delay(delay);
        }
        if let Some(limit) = self.expires_in {
            message = message.expires_in(limit);
        }
        if let Some(name) = &self.timer {
            message = message.timer_id(name);
        }
        if self.extend {
            message = message.on_conflict(TimerConflict::Extend);
        }
        Ok(message)
    }

    fn payload(&self) -> Result<Vec<u8>, Trouble> {
        let (read, from): (io::Result<Vec<u8>>, _) = match (&self.file, self.payload.as_deref()) {
            (Some(path), _) => {
                (std::fs::File::open(path).and_then(all), path.display().to_string())
            }
            (None, Some("-")) => (all(io::stdin().lock()), "standard input".into()),
            (None, text) => return Ok(text.unwrap_or_default().as_bytes().to_vec()),
        };
        let bytes =
            read.map_err(|error| Trouble::Usage(format!("{from} cannot be read: {error}")))?;
        // Cut off, it would be no JSON.
        if bytes.len() > MAX_PAYLOAD {
            return Err(Trouble::Usage(format!(
                "{from} has more than {MAX_PAYLOAD} bytes, which is the most that a payload may have"
            )));
        }
        Ok(bytes)
    }
}

/// Refuses a payload that is no JSON document.
pub(super) fn json_document(payload: &[u8]) -> Result<(), Trouble> {
    if payload.is_empty() {
        let told = "the payload is empty, which is not a JSON document; `--raw` takes it";
        return Err(Trouble::Usage(told.into()));
    }
    // All of it is read: what is skipped may be no UTF-8, or nested without end.
    serde_json::from_slice::<serde_json::Value>(payload).map(drop).map_err(|error| {
        Trouble::Usage(format!(
            "the payload is not a JSON document: {error}; a JSON text has quotes of its own \
             ('\"hello\"'), and `--raw` takes bytes as they are"
        ))
    })
}

pub(super) fn all(from: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more, to see that there is more.
    from.take(MAX_PAYLOAD as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
