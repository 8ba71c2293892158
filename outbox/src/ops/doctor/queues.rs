//! Queues that nobody reads, and subscribers that may read the wrong one.

use std::collections::BTreeMap;

use super::names::{alike, count};
use super::report::Found;
use crate::error::Result;
use crate::ops::{Operator, on_desk};
use crate::subscriber::Subscriber;

/// What lies in the tables for one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) queue: String,
    /// Rows in the outbox.
    pub(crate) rows: u64,
    /// Failed dead letters.
    pub(crate) letters: u64,
}

impl Waiting {
    /// Joins the counts of both tables, queue by queue.
    pub(crate) fn of(rows: Vec<(String, u64)>, letters: Vec<(String, u64)>) -> Vec<Self> {
        let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (queue, count) in rows {
            all.entry(queue).or_default().0 = count;
        }
        for (queue, count) in letters {
            all.entry(queue).or_default().1 = count;
        }
        let of_each = |(queue, (rows, letters))| Self { queue, rows, letters };
        all.into_iter().map(of_each).collect()
    }
}

pub(super) async fn check(
    operator: &Operator,
    subscribers: &[Subscriber],
    found: &mut Found,
) -> Result<String> {
    let waiting = on_desk!(operator, desk => desk.waiting().await)?;
    if subscribers.is_empty() {
        found.warning(
            "this program has no handlers: it cannot tell which queues are read, nor whether \
             their messages decode",
            "these are the checks that keep a deploy from failing",
            "mount `outbox::cli::run(app)` in the program with the handlers, and run `doctor` there",
        );
        return Ok(seen(&waiting));
    }
    if operator.names().dlq().is_none() {
        loses(subscribers, found);
    }
    let readers = readers(subscribers);
    // Tables that Python made have no table of pauses.
    if let Ok(paused) = operator.paused().await {
        let paused: Vec<_> = paused.iter().map(|one| &*one.queue).collect();
        idle(&waiting, &paused, &readers, found);
    }
    Ok(judge(&waiting, &readers, found))
}

/// Queues, each with a subscriber that reads it.
type Readers<'a> = BTreeMap<&'a str, &'a str>;

fn readers(subscribers: &[Subscriber]) -> Readers<'_> {
    let all = subscribers.iter();
    all.flat_map(|one| one.queues().iter().map(|queue| (queue.as_str(), one.name()))).collect()
}

/// Notes the queues of this program that have left no trace: a name may be wrong. If no queue has
/// left one, nothing is known yet.
fn idle(waiting: &[Waiting], paused: &[&str], readers: &Readers<'_>, found: &mut Found) {
    let traces = || waiting.iter().map(|one| &*one.queue).chain(paused.iter().copied());
    // Of a likely typo, `judge` tells.
    let seen =
        |queue| traces().any(|it| it == queue || !readers.contains_key(it) && alike(it, queue));
    let idle = readers.iter().filter(|(queue, _)| !seen(**queue));
    let told: Vec<_> = idle.map(|(queue, reader)| format!("`{queue}` ({reader})")).collect();
    if !told.is_empty() && traces().next().is_some() {
        found.note(
            format!(
                "there are no rows, no failed dead letters and no pause in {} of this program: {}",
                count(told.len() as u64, "queue"),
                told.join(", ")
            ),
            "this is so where everything is handled, and where nobody publishes to a queue of \
             that name",
            "compare the names with those that are published to",
        );
    }
}

/// Warns of subscribers whose failures are deleted, as there is no dead-letter table.
fn loses(subscribers: &[Subscriber], found: &mut Found) {
    let fails = subscribers.iter().filter(|one| one.options.can_fail_terminally());
    let names: Vec<_> = fails.map(|one| format!("`{}`", one.name())).collect();
    if !names.is_empty() {
        found.warning(
            format!(
                "no dead-letter table is configured: messages of {} that fail for good are deleted",
                names.join(", ")
            ),
            "nobody can look at such a message, or replay it",
            "set `OUTBOX_DLQ_TABLE`, or call `.dlq(..)` on the app",
        );
    }
}

fn judge(waiting: &[Waiting], readers: &Readers<'_>, found: &mut Found) -> String {
    let unread = waiting.iter().filter(|one| !readers.contains_key(one.queue.as_str()));
    for Waiting { queue, rows, letters } in unread {
        let meant = readers.iter().find(|(other, _)| alike(queue, other));
        let letters = count(*letters, "failed dead letter");
        let lies = match *rows {
            0 => letters,
            rows => format!("{} and {letters}", count(rows, "row")),
        };
        let what =
            format!("no subscriber of this program reads the queue `{queue}`, which has {lies}");
        let why = "unless another program reads it, its messages wait for ever";
        if let Some((other, subscriber)) = meant {
            found.warning(
                format!(
                    "{what}; did you mean `{other}`, which the subscriber `{subscriber}` reads?"
                ),
                why,
                format!(
                    "if `{other}` and `{queue}` are meant to be one queue, use the same name where \
                     messages are published and where they are read"
                ),
            );
        } else if *rows > 0 {
            found.warning(
                what,
                why,
                "deploy the program that reads it, or find out who publishes to it",
            );
        } else {
            found.note(
                what,
                "a replay would put them where nobody reads",
                "replay them to another queue, or mark them ignored",
            );
        }
    }
    let read = count(readers.len() as u64, "queue");
    format!("{}; this program reads {read}", seen(waiting))
}

fn seen(waiting: &[Waiting]) -> String {
    format!("{} with rows or failed dead letters", count(waiting.len() as u64, "queue"))
}
