//! `queues`: the list of queues.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::{Context, Done, Trouble};
use crate::ops::{Operator, QueueInfo, rfc3339};

/// How many queues are listed at most.
const MOST: u32 = 10_000;

/// List the queues with rows, open dead letters, a pause or a subscriber.
///
/// The subscribers are those of this program. This is cheap, however many rows there are.
#[derive(Debug, Args)]
pub(super) struct Queues {}

/// A queue with what this program knows of it.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    info: QueueInfo,
    subscriber: Option<&'static str>,
}

impl Queues {
    // Like its siblings.
    #[allow(clippy::needless_pass_by_value)]
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let operator = context.operator()?;
        let found = operator.queues(MOST + 1).await?;
        let more = found.len() > MOST as usize;
        let mut known = BTreeMap::new();
        for (queue, subscriber) in context.subscribed() {
            known.entry(queue).or_insert(subscriber);
        }
        let line = |info: QueueInfo| Line { subscriber: known.remove(&info.queue), info };
        let mut lines: Vec<Line> = found.into_iter().take(MOST as usize).map(line).collect();
        // Of those behind the last one nothing is known.
        let last = lines.last().filter(|_| more).map(|line| line.info.queue.clone());
        known.retain(|queue, _| last.as_ref().is_none_or(|last| queue < last));
        lines.extend(known.into_iter().map(|(queue, subscriber)| {
            let (has_rows, has_dead_letters) = (false, false);
            let info = QueueInfo { queue, has_rows, has_dead_letters, paused_at: None, note: None };
            Line { info, subscriber: Some(subscriber) }
        }));
        lines.sort_by(|a, b| a.info.queue.cmp(&b.info.queue));
        context
            .out
            .result(&json!({ "queues": lines, "more": more }), || text(context, &lines, more));
        Ok(Done::Good)
    }
}

fn text(context: &Context, lines: &[Line], more: bool) -> String {
    if lines.is_empty() {
        return "the tables are empty, and no queue is paused".into();
    }
    let yes = |it: bool| if it { "yes" } else { "-" }.to_owned();
    let rows = lines.iter().map(|Line { info, subscriber }| {
        let since = info.paused_at.map(|at| format!("since {}", rfc3339(at)));
        let pause = [since, info.note.clone()].into_iter().flatten().collect::<Vec<_>>().join(": ");
        let pause = if pause.is_empty() { "-".into() } else { pause };
        let subscriber = subscriber.unwrap_or("-").to_owned();
        [info.queue.clone(), yes(info.has_rows), yes(info.has_dead_letters), subscriber, pause]
    });
    let mut text = context.out.table(["QUEUE", "ROWS", "DEAD", "SUBSCRIBER", "PAUSED"], rows, None);
    if more {
        let _ = writeln!(text, "there are more; these are the first {MOST} by name");
    }
    text
}

/// Notes each name that nothing is known about: it may be mistyped. This is only a hint: when the
/// queues cannot be looked up, the command does its work all the same, and of the names behind
/// the first [`MOST`] queues nothing is said.
pub(super) async fn doubt(context: &Context, operator: &Operator, names: &[String]) {
    let found = match operator.queues(MOST).await {
        Ok(found) => found,
        Err(error) => {
            let error = super::output::printable_lines(&error.to_string());
            context.out.note(&format!("note: cannot tell whether the names are right: {error}"));
            return;
        }
    };
    let subscribed = context.subscribed();
    let last = found.last().filter(|_| found.len() >= MOST as usize);
    for name in names {
        let known = last.is_some_and(|last| *name > last.queue)
            || found.iter().any(|one| one.queue == *name && (one.has_rows || one.has_dead_letters))
            || subscribed.iter().any(|(queue, _)| queue == name);
        if !known {
            let name = super::output::printable(name);
            context.out.note(&format!(
                "note: the queue {name} has no rows, no open dead letters, and no subscriber in \
                 this program; is the name right?"
            ));
        }
    }
}
