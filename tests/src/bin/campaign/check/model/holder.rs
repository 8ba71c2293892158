//! A delivery, by what is known of it beside its row.

use outbox_model::Verdict;

use crate::history::{Change, History, Run};

pub(super) struct Holder<'a> {
    pub(super) app: &'a str,
    pub(super) token: &'a str,
    pub(super) claimed: i64,
    pub(super) run: Option<&'a Run>,
}

impl Holder<'_> {
    /// What its handler came to, by its own word; bytes that do not decode fail unrun.
    pub(super) fn said(&self, history: &History, change: &Change) -> Option<Verdict> {
        let ended = self.run.and_then(|run| run.ended.as_ref());
        match ended.filter(|(at, _)| change.is_behind(*at)).map(|(_, word)| word.as_str()) {
            Some("ok") => Some(Verdict::Ok),
            Some("fail" | "panic") => Some(Verdict::Fail),
            Some("reject") => Some(Verdict::Reject),
            Some("snooze") => Some(Verdict::Snooze),
            _ => {
                let biz = change.key.as_deref().and_then(|key| history.biz.get(key));
                biz.filter(|biz| biz.act == "Bad").map(|_| Verdict::Fail)
            }
        }
    }

    /// As if it had never had the row.
    pub(super) fn gave_back(&self, change: &Change) -> Result<(), String> {
        match self.run.filter(|run| run.begun <= change.at) {
            Some(run) => Err(format!("its run began {} us before", change.at - run.begun)),
            None => Ok(()),
        }
    }
}

/// The clock of a statement, as far as what it wrote tells it.
pub(super) fn within(change: &Change, now: i64) -> Result<(), String> {
    let Change { stmt, at, .. } = *change;
    if (stmt..=at).contains(&now) {
        return Ok(());
    }
    Err(format!("it took {now} for the time between {stmt} and {at}"))
}
