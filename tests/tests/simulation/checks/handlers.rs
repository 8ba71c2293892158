//! H1 H3 H4: when a handler may start, and how long it may run.

use std::collections::HashMap;
use std::time::Duration;

use super::Wrong;
use crate::books::{Books, Name};
use crate::journal::{Entry, What};

pub fn check_start(books: &Books, at: Duration, name: Name, wrong: &mut Wrong) {
    let id = name.0;
    let Some(lease) = books.leases.get(&name) else {
        return wrong.unless(false, "H3", || format!("row {id} was started without a claim"));
    };
    wrong.unless(lease.started.is_none(), "H1", || format!("row {id} was started twice"));
    wrong.unless(at < lease.end() && !lease.settled, "H3", || {
        format!("row {id} was started at {at:?}, and its lease was over at {:?}", lease.end())
    });
    let dead = books.crashed.contains_key(&lease.session);
    wrong.unless(!dead, "H3", || format!("row {id} was started by a dead process"));
    let stopped = books.draining.contains(&lease.session);
    wrong.unless(!stopped, "G1", || format!("row {id} was started after the stop"));
}

/// Handlers that still ran when another one started on their message.
#[derive(Default)]
pub struct Overlaps(HashMap<Name, Duration>);

impl Overlaps {
    pub fn check(&mut self, books: &Books, entry: &Entry, wrong: &mut Wrong) {
        match &entry.what {
            What::Runs { id, token } => {
                let others = books.leases.iter().filter(|((row, other), lease)| {
                    let dead = books.crashed.contains_key(&lease.session);
                    row == id && other != token && lease.runs() && !dead
                });
                for (name, lease) in others {
                    wrong.unless(entry.at >= lease.end(), "H4", || {
                        format!("row {id} was started while its handler ran on a valid lease")
                    });
                    self.0.insert(*name, entry.at);
                }
            }
            // It is cancelled at the moment at which its lease is over.
            What::Ends { id, token, .. } => {
                if let Some(since) = self.0.remove(&(*id, *token)) {
                    wrong.unless(entry.at == since, "H4", || {
                        format!(
                            "row {id}: a handler ran on for {:?} beside another",
                            entry.at - since
                        )
                    });
                }
            }
            _ => {}
        }
    }
}
