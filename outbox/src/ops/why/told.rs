//! The answers in words.

use std::fmt::Write as _;

use serde::Serialize;

use super::answer::{Answer, Extension, Letter, Session, Sureness};
use crate::ops::age::age;
use crate::ops::json::rfc3339;

/// An answer in words. It contains texts of others as they wrote them: whoever prints it has to
/// escape their control characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Told {
    /// What is the case.
    pub what: String,
    /// What it means.
    pub means: String,
    /// What to do about it.
    pub next: String,
}

impl Answer {
    /// The answer in words.
    #[must_use]
    #[allow(clippy::too_many_lines, reason = "a text for each answer")]
    pub fn told(&self) -> Told {
        match self {
            Self::Leased { token, until, lease_ttl, subscriber, extension, alone, .. } => {
                let whose = whose(subscriber.as_deref());
                let what = format!(
                    "a claim holds it until {} (token {token}; leases of {}, {whose})",
                    rfc3339(*until),
                    age(*lease_ttl)
                );
                let mut means = match extension {
                    Extension::Alive => "its process lives and extends the lease, or has just \
                                         settled the row: its handler is running"
                        .into(),
                    Extension::NotYetDue { by } => format!(
                        "its handler runs or is about to; by {} it is clear whether its process \
                         still lives",
                        rfc3339(*by)
                    ),
                    Extension::Overdue { since } => format!(
                        "its process should have extended the lease {} ago: it is dead, cut off \
                         or stuck, or the row waits in its memory; or it is a Python service, \
                         which extends no lease",
                        age(*since)
                    ),
                };
                if matches!(extension, Extension::Overdue { .. }) && subscriber.is_none() {
                    means += LONGER;
                }
                if *alone {
                    means += ". The row runs alone, because a process that had it in hand died";
                }
                let next = match extension {
                    Extension::Alive => "nothing; if the handler hangs, see its log for this id",
                    Extension::NotYetDue { .. } => {
                        "ask again then, or watch it with --watch-lease"
                    }
                    Extension::Overdue { .. } => {
                        "nothing, if you can wait until the lease is over: another claim takes the \
                         row then. Otherwise see whether its process is alive"
                    }
                };
                Told { what, means, next: next.into() }
            }
            Self::LeaseRanOut { over_for, subscriber, token, .. } => Told {
                what: format!(
                    "a claim whose time has been over for {} holds it (token {token}; time of \
                     its lease: {})",
                    age(*over_for),
                    whose(subscriber.as_deref())
                ),
                means: format!(
                    "the process that claimed it died, was cut off, or lost the database, or it is \
                     a Python service with longer leases{}. Once its lease is over, the next claim \
                     of a subscriber of the queue takes the row",
                    if subscriber.is_none() { LONGER } else { "" }
                ),
                next: "start a process that reads the queue, if none runs; see why the other died"
                    .into(),
            },
            Self::HalfLeased { token } => Told {
                what: format!("half a lease: a token, {token}, without a time"),
                means: "no claim takes it, because the time of such a lease is never over; \
                        somebody else's SQL wrote it, and the table lacks the CHECK against that"
                    .into(),
                next: "`outbox check` has the SQL that sets all such rows free and refuses new ones"
                    .into(),
            },
            Self::Paused { since, note } => {
                let mut what = format!("its queue is paused since {}", rfc3339(*since));
                if let Some(note) = note {
                    let _ = write!(what, ": {note}");
                }
                Told {
                    what,
                    means: "no claim takes it; what was claimed before the pause is finished"
                        .into(),
                    next: "`outbox resume QUEUE` when the reason for the pause is gone".into(),
                }
            }
            Self::Scheduled { due_at, due_in, attempts, last_attempt_at } => {
                let what = format!("it is due in {}, at {}", age(*due_in), rfc3339(*due_at));
                match last_attempt_at {
                    Some(last) => Told {
                        what,
                        means: format!(
                            "its handler has failed {attempts} times, the last time at {}; it \
                             waits for the next try",
                            rfc3339(*last)
                        ),
                        next: "wait; if the handler logs its errors, its log has the text: only a dead \
                               letter stores it"
                            .into(),
                    },
                    None => Told {
                        what,
                        means: "it was published with a delay or a time, or its handler snoozed \
                                it, or its result could not be written, and it runs once a lease \
                                until it can"
                            .into(),
                        next: "wait; a timer is cancelled with `outbox cancel-timer QUEUE NAME`; \
                               the log of its program has a warning if a result was refused, and \
                               `outbox check` names what its tables lack"
                            .into(),
                    },
                }
            }
            Self::Locked { by, certain } => Told {
                what: match by.len() {
                    2.. if !certain => format!("one of these has locked it: {}", sessions(by)),
                    _ if !certain => format!("an open transaction has locked it: {}", sessions(by)),
                    _ => format!("an open transaction has locked or deleted it: {}", sessions(by)),
                },
                means: "claims pass it by until that transaction is over".into(),
                next: next_for(by),
            },
            Self::TableLocked { by } => Told {
                what: format!("its table is locked: {}", sessions(by)),
                means: "nothing can be claimed until that is over, nor settled or published unless \
                        only the table of pauses is locked"
                    .into(),
                next: next_for(by),
            },
            Self::NobodyReads { sure, program_would } => {
                let program = match program_would {
                    None => "this program has no handlers, and cannot tell",
                    Some(true) => "this program would, but no process of it seems to run",
                    Some(false) => "this program does not",
                };
                let (seems, trace) = match sure {
                    Sureness::Likely => (
                        "very likely nobody reads its queue",
                        "no connection of a subscriber sleeps on the queue, as far as the database \
                         tells, and none of its other rows is under a lease that still holds; a \
                         process that is very busy, or a Python service, would not show",
                    ),
                    Sureness::Guess => (
                        "perhaps nobody reads its queue",
                        "none of its other rows is under a lease that still holds; a process that \
                         reads it and has nothing to do would not show",
                    ),
                };
                Told {
                    what: format!("{seems} ({program})"),
                    means: trace.into(),
                    next: "start the program that has a subscriber of this queue; compare the \
                           name of the queue with the one in its `#[subscriber(..)]`"
                        .into(),
                }
            }
            Self::Expired { at } => Told {
                what: format!("it was to be started by {}", rfc3339(*at)),
                means: "the next claim ends it as `expired`, without its handler".into(),
                next: "publish it again without `expires_in`, if it is still wanted".into(),
            },
            Self::Ready { due_for, before, before_bounded } => {
                let more = if *before_bounded { " or more" } else { "" };
                let means = match before {
                    0 => "it is the first of its queue: the next claim takes it".to_owned(),
                    _ => format!("{before}{more} rows of its queue are claimed before it"),
                };
                Told {
                    what: format!(
                        "it has been due for {}, is free, and nothing is in its way",
                        age(*due_for)
                    ),
                    means,
                    next: "see with `outbox stats --watch` whether the queue moves; if not, see \
                           the log of the process that reads it"
                        .into(),
                }
            }
            Self::DeadLetter(letter) => dead(letter),
            Self::ReplayOf(letter) => Told {
                what: format!(
                    "a replay of the dead letter {} made it (it was row {} before)",
                    letter.letter_id, letter.original_id
                ),
                means: format!("the letter had failed as {}", reason(letter)),
                next: format!("`outbox dlq show {}` shows what failed then", letter.letter_id),
            },
            Self::Uncommitted { writers } => Told {
                what: format!(
                    "it is not there, and a transaction that may have published it is open: {}",
                    sessions(writers)
                ),
                means: "a message is seen when its transaction commits, and never if it rolls \
                        back; which of them wrote it, if any, cannot be seen"
                    .into(),
                next: next_for(writers),
            },
            Self::Gone { last_id, letters_read } => {
                let mut what = "it is in neither table".to_owned();
                if let Some(read) = letters_read {
                    let _ =
                        write!(what, " (of the dead letters, the newest {read} were looked at)");
                }
                let means = if last_id.is_some() {
                    "its id was given out: it was handled, it was a timer that was cancelled, its \
                     transaction was rolled back, it failed for good where no dead letters are \
                     kept, its dead letter was deleted (`dlq purge`, a dropped month), or somebody \
                     deleted the row"
                } else {
                    "it was handled, cancelled, rolled back, deleted (it or its dead letter), or \
                     never published: which ids were given out cannot be read"
                };
                let next = if letters_read.is_some() {
                    "`outbox why --all-letters ID` looks at all dead letters; the log of the \
                     handlers has the id of what failed, and with `RUST_LOG=outbox=debug` every id"
                } else {
                    "the log of the handlers has the id of what failed, and with \
                     `RUST_LOG=outbox=debug` every id"
                };
                Told { what, means: means.into(), next: next.into() }
            }
            Self::NeverGivenOut { last_id } => Told {
                what: format!("no message has had this id; the last one given out is {last_id}"),
                means: "the id is wrong, or belongs to another table or database (on SQLite it may also \
                        belong to a transaction that was rolled back or is open)"
                    .into(),
                next: "compare DATABASE_URL, OUTBOX_TABLE and OUTBOX_SCHEMA with those of the \
                       publisher"
                    .into(),
            },
        }
    }
}

/// Said where the time of a lease is only assumed.
const LONGER: &str = "; or all is well, because its subscriber has a longer `lease_ttl` than the \
                      default: the program that has the handlers knows";

/// Says who keeps a table locked, to somebody who wants to use it.
#[cfg(feature = "postgres")]
pub(crate) fn locked(table: &str, by: &[Session]) -> Told {
    Told {
        what: format!("the table {table} is locked: {}", sessions(by)),
        means: "whoever else needs the table, apps included, waits until that is over".into(),
        next: next_for(by),
    }
}

fn dead(letter: &Letter) -> Told {
    let Letter { letter_id, failed_at, status, replayed_id, .. } = letter;
    let mut means = match status.as_str() {
        "resolved" => "it is resolved".to_owned(),
        "ignored" => "it was judged not worth handling".to_owned(),
        _ => "it waits for somebody to replay, resolve or ignore it".to_owned(),
    };
    if let Some(row) = replayed_id {
        let _ = write!(means, "; it was replayed as row {row}");
    }
    let next = match replayed_id {
        Some(row) => format!("`outbox why {row}` for the row that the replay made"),
        None if status == "failed" => {
            format!("`outbox dlq show {letter_id}`, then `outbox dlq replay {letter_id}`")
        }
        // It is closed, perhaps with a note that says why.
        None => format!("`outbox dlq show {letter_id}`"),
    };
    let what = format!(
        "it became the dead letter {letter_id} at {}: {}",
        rfc3339(*failed_at),
        reason(letter)
    );
    Told { what, means, next }
}

fn reason(letter: &Letter) -> String {
    let mut text = format!("`{}`", letter.failure_reason);
    if let Some(kind) = &letter.error_kind {
        let _ = write!(text, ", error of kind `{kind}`");
    }
    text
}

fn whose(subscriber: Option<&str>) -> String {
    match subscriber {
        Some(name) => format!("as set by the subscriber `{name}`"),
        None => "the default, as this program has no subscriber of the queue".into(),
    }
}

fn sessions(all: &[Session]) -> String {
    if all.is_empty() {
        return "whose it is cannot be seen".into();
    }
    let told = all.iter().map(|one| {
        let mut text = match one.pid {
            Some(pid) => format!("pid {pid}"),
            None => "a prepared transaction (see pg_prepared_xacts)".into(),
        };
        for known in [&one.application_name, &one.user, &one.state].into_iter().flatten() {
            if !known.is_empty() {
                let _ = write!(text, ", {known}");
            }
        }
        if let Some(time) = one.open_for {
            let _ = write!(text, ", open for {}", age(time));
        }
        text
    });
    told.collect::<Vec<_>>().join("; ")
}

/// Of several it is not said which to end: some may have nothing to do with it.
fn next_for(sessions: &[Session]) -> String {
    match sessions {
        [Session { pid: Some(pid), .. }] => {
            format!("let it end; if it hangs, `SELECT pg_terminate_backend({pid})` rolls it back")
        }
        [_, _, ..] => "let them end; `SELECT pg_terminate_backend(pid)` rolls one back, if you \
                       know that it hangs"
            .into(),
        _ => "let it end; see which programs have the database open".into(),
    }
}
