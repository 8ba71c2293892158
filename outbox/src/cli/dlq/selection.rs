//! The arguments that choose the letters of a command.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use clap::Args;

use super::super::output::printable;
use super::super::queues;
use super::{Context, DeadLetters, Trouble};
use crate::dlq::{Filter, few};
use crate::ops::{Operator, rfc3339};

fn id(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "it is no id; a queue is named by `--queue`".to_owned())
}

/// The conditions of a filter, as arguments.
#[derive(Debug, Args)]
pub(super) struct Selection {
    /// Ids of letters.
    #[arg(value_name = "ID", value_parser = id)]
    ids: Vec<i64>,
    /// Only letters of this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only letters with this reason: retry_terminal, rejected, max_deliveries, expired. No index
    /// covers the reason: the letters have to be searched for it.
    #[arg(long)]
    reason: Option<String>,
    /// Only letters with an error of this kind. No index covers the kind, either.
    #[arg(long)]
    error_kind: Option<String>,
    /// Only letters of this problem, as `dlq groups` names it.
    #[arg(long)]
    fingerprint: Option<String>,
    /// Only letters that failed at this time or later: a time such as `2026-11-22T04:20:00Z`, or
    /// an age such as `2h`.
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
    /// Only letters that failed before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<When>,
}

/// A time, or how long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    At(SystemTime),
    Ago(Duration),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is neither a time like `2026-11-22T04:20:00Z` nor an age like `2h`")
        };
        if let Ok(time) = humantime::parse_rfc3339_weak(text) {
            return Ok(Self::At(time));
        }
        crate::duration::parse(text).map(Self::Ago).map_err(|error| format!("{}: {error}", wrong()))
    }
}

impl When {
    /// The time that is meant; an age counts from now by the database's clock.
    pub(super) async fn time(self, letters: &DeadLetters) -> Result<SystemTime, Trouble> {
        match self {
            Self::At(time) => Ok(time),
            Self::Ago(age) => letters.now().await?.checked_sub(age).ok_or_else(|| {
                Trouble::Usage("the age is longer than the computer can count".into())
            }),
        }
    }
}

impl Selection {
    /// The ids, each once.
    pub(super) fn ids(&self) -> Vec<i64> {
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    pub(super) async fn filter(&self, letters: &DeadLetters) -> Result<Filter, Trouble> {
        let time = async |when: Option<When>| match when {
            Some(when) => when.time(letters).await.map(Some),
            None => Ok(None),
        };
        Ok(Filter {
            ids: (!self.ids.is_empty()).then(|| self.ids()),
            queue: self.queue.clone(),
            reason: self.reason.clone(),
            error_kind: self.error_kind.clone(),
            fingerprint: self.fingerprint.clone(),
            since: time(self.since).await?,
            until: time(self.until).await?,
            ..Filter::new()
        })
    }

    /// As [`filter`](Self::filter), for a command that changes letters: a forgotten argument must
    /// not mean all of them.
    pub(super) async fn filter_or_all(
        &self,
        letters: &DeadLetters,
        all: bool,
    ) -> Result<Filter, Trouble> {
        let filter = self.filter(letters).await?;
        match (filter == Filter::new(), all) {
            (true, false) => {
                Err(Trouble::Usage("which letters? Name ids or a filter, or give `--all`".into()))
            }
            (false, true) => {
                Err(Trouble::Usage("`--all` and a filter contradict each other".into()))
            }
            _ => Ok(filter),
        }
    }
}

/// What was done before anybody was asked. To find letters of a problem, fingerprints are written.
pub(super) fn so_far(filter: &Filter) -> &'static str {
    if filter.fingerprint.is_some() {
        "no letter was changed, except that missing fingerprints were written"
    } else {
        "nothing was done"
    }
}

/// For a question: ` of queue orders, failed before 2026-11-22T04:20:00.000000Z`.
pub(super) fn told(filter: &Filter) -> String {
    let text = |value: &Option<String>| Some(printable(value.as_deref()?).into_owned());
    let words = [
        (" of queue", text(&filter.queue)),
        (" with reason", text(&filter.reason)),
        (" of kind", text(&filter.error_kind)),
        (" of problem", text(&filter.fingerprint)),
        (", failed since", filter.since.map(rfc3339)),
        (", failed before", filter.until.map(rfc3339)),
        (", of the ids", filter.ids.as_deref().map(few)),
    ];
    let told = words.into_iter().filter_map(|(word, value)| Some(format!("{word} {}", value?)));
    told.collect()
}

/// Behind `0 letters replayed`: there is nothing to do, or a word of the filter is misspelt.
/// Letters that were named by their ids are told of one by one.
pub(super) fn none_open(which: &str, filter: &Filter, open: u64, ahead: u64) -> String {
    if filter.ids.is_some() || open + ahead > 0 {
        return String::new();
    }
    format!(": no letter{which} is open")
}

/// Notes what may be wrong where no letters are found: nobody keeps any, or the name of the queue is
/// mistyped.
pub(super) async fn none(context: &Context, operator: &Operator, filter: &Filter) {
    if operator.names().dlq().is_none() {
        context.out.note(
            "note: `OUTBOX_DLQ_TABLE` is not set here; an app that has no dead-letter table either \
             deletes what fails for good",
        );
    }
    if let Some(queue) = &filter.queue {
        queues::doubt(context, operator, std::slice::from_ref(queue)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_one_or_an_age() {
        assert_eq!("2h".parse(), Ok(When::Ago(Duration::from_secs(7200))));
        let second = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        assert_eq!("1970-01-01T00:00:01Z".parse(), Ok(When::At(second)));
        assert_eq!("1970-01-01 00:00:01".parse(), Ok(When::At(second)));
        assert!("yesterday".parse::<When>().unwrap_err().contains("yesterday"));
    }
}
