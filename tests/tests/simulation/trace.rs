//! A journal as text, the same for the same run: tokens are numbered as they appear.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use outbox::Row;
use uuid::Uuid;

use crate::journal::{Entry, What, since_start};

#[derive(Default)]
struct Tokens(HashMap<Uuid, usize>);

impl Tokens {
    fn number(&mut self, token: Uuid) -> usize {
        let next = self.0.len() + 1;
        *self.0.entry(token).or_insert(next)
    }

    fn row(&mut self, row: Option<&Row>) -> String {
        let Some(row) = row else { return "-".into() };
        let token = row.acquired_token.map(|token| self.number(token));
        let since = row.acquired_at.map(since_start);
        format!(
            "{}@{} due {:?} a{} d{} t{token:?} since {since:?}",
            row.id,
            row.queue,
            since_start(row.next_attempt_at),
            row.attempts_count,
            row.deliveries_count
        )
    }
}

/// A line an entry.
pub fn text(journal: &[Entry]) -> String {
    let (mut tokens, mut text) = (Tokens::default(), String::new());
    for Entry { at, what } in journal {
        let line = match what {
            What::Written { session, rows, letters } => {
                let mut line = format!("{session} writes");
                for change in rows {
                    let before = tokens.row(change.before.as_ref());
                    let after = tokens.row(change.after.as_ref());
                    let _ = write!(line, " [{before} -> {after}]");
                }
                for letter in letters {
                    let _ = write!(line, " [{} {}]", letter.original_id, letter.failure_reason);
                }
                line
            }
            What::Sent { session, action } => format!("{session} sends {action}"),
            What::Fault { session, action, fault } => format!("{session} {action}: {fault:?}"),
            What::Woke { queue, processes } => format!("{queue} wakes {processes}"),
            What::Deafened { queue } => format!("{queue} deafens one"),
            What::Started { session } => format!("{session} starts"),
            What::Crashed { session, place } => format!("{session} crashes: {place:?}"),
            What::Draining { session } => format!("{session} drains"),
            What::Drained { session, clean } => format!("{session} has drained: {clean}"),
            What::Calm => "no more faults".into(),
            What::Runs { id, token } => format!("{id} runs, t{}", tokens.number(*token)),
            What::Ends { id, token, how } => {
                format!("{id} ends, t{}: {how:?}", tokens.number(*token))
            }
            What::Published { delay, published, .. } => format!("{published:?} in {delay:?}"),
            What::Cancelled { id, done } => format!("{id} is cancelled: {done}"),
            What::Idle => "idle".into(),
        };
        let _ = writeln!(text, "{:>9.3} {line}", at.as_secs_f64());
    }
    text
}

/// Fixed for a text, in every process.
pub fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
