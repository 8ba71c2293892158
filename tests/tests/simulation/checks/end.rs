//! M1 X1 Z1: what has to be true when all is over.

use std::collections::HashSet;
use std::time::Duration;

use outbox::testing::Ending;

use super::Wrong;
use crate::books::{Books, Move};
use crate::handlers::QUEUES;
use crate::journal::{Entry, What};
use crate::workload::Ran;

/// From the last fault or the last message to the moment when nothing is left: a lease
/// (3 s), the longest wait after errors (30 s), 5 s; and three runs of the slowest handler
/// (6 s) with the waits between them (2 s), one after the other on one worker.
const LONGEST: Duration = Duration::from_secs(90);

pub fn check(books: &Books, ran: &Ran, wrong: &mut Wrong) {
    if let Some(time) = settling(&ran.journal) {
        let left = books.rows.len();
        wrong.unless(left == 0, "M1", || format!("nothing is left to do, but {left} rows are"));
        wrong.unless(time <= LONGEST, "Z1", || format!("{time:?} after the last fault"));
    }
    every_row_is_accounted_for(books, ran, wrong);
    counted_as_written(ran, wrong);
}

/// From the last fault, the last start of a process or the last message until nothing is
/// left, if that was waited for.
pub fn settling(journal: &[Entry]) -> Option<Duration> {
    let idle = journal.iter().position(|entry| matches!(entry.what, What::Idle))?;
    let trouble = |entry: &&Entry| {
        matches!(entry.what, What::Fault { .. } | What::Published { .. } | What::Started { .. })
    };
    let last = journal[..idle].iter().rfind(trouble).map_or(Duration::ZERO, |entry| entry.at);
    Some(journal[idle].at - last)
}

fn every_row_is_accounted_for(books: &Books, ran: &Ran, wrong: &mut Wrong) {
    let mut gone = HashSet::new();
    let mut published = HashSet::new();
    for change in changes(ran) {
        match change {
            Move::Published(row) => {
                published.insert(row.id);
            }
            Move::Deleted(row) => {
                wrong.unless(gone.insert(row.id), "M1", || format!("row {} is gone twice", row.id));
            }
            _ => {}
        }
    }
    let lost = published.iter().filter(|id| !gone.contains(*id) && !books.rows.contains_key(id));
    wrong.unless(lost.count() == 0, "M1", || "a row is neither there nor gone".into());
    let rows = ran.broker.rows();
    wrong.unless(rows.iter().eq(books.rows.values()), "M1", || {
        "the audit tells of other rows than the table".into()
    });
    let queues: HashSet<_> = rows.iter().map(|row| row.queue.as_str()).collect();
    wrong.unless(queues.iter().all(|it| QUEUES.contains(it)), "M1", || format!("{queues:?}"));
}

fn changes(ran: &Ran) -> impl Iterator<Item = Move<'_>> {
    let written = ran.journal.iter().filter_map(|entry| match &entry.what {
        What::Written { rows, .. } => Some(rows),
        _ => None,
    });
    written.flatten().map(Move::of)
}

/// Nothing is counted that was not written; without faults, all of it is.
fn counted_as_written(ran: &Ran, wrong: &mut Wrong) {
    let stats = ran.broker.stats().subscribers();
    let acked: u64 = stats.iter().map(|one| one.acked).sum();
    let retried: u64 = stats.iter().map(|one| one.retried).sum();
    let buried: u64 = stats.iter().map(|one| one.dead_lettered).sum();
    let letters = ran.broker.dlq_rows().len() as u64;
    let (mut acks, mut retries) = (0, 0);
    for entry in &ran.journal {
        let What::Written { session: 1.., rows, letters } = &entry.what else { continue };
        for change in rows.iter().map(Move::of) {
            acks += u64::from(matches!(change, Move::Deleted(_)));
            retries += u64::from(matches!(change, Move::Retried { .. }));
        }
        acks -= letters.len() as u64;
    }
    let troubled = |entry: &Entry| matches!(entry.what, What::Fault { .. } | What::Crashed { .. });
    let exact = !ran.journal.iter().any(troubled);
    for (what, counted, written) in
        [("acks", acked, acks), ("retries", retried, retries), ("letters", buried, letters)]
    {
        wrong.unless(counted == written || !exact && counted < written, "X1", || {
            format!("{counted} {what} are counted and {written} were written")
        });
    }
    let calls = stats.iter().flat_map(|one| ran.broker.calls(one.name));
    let told = calls.filter(|call| call.ending == Ending::Acked).count() as u64;
    wrong.unless(told == acks, "X1", || format!("{told} calls were acked, {acks} rows were"));
}
