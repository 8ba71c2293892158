//! A change of letters, and those that stay as they are: named ones that a command cannot change, and
//! those ahead of the clock.

use std::fmt::Write as _;

use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::super::interrupted::until_interrupted;
use super::{Context, DeadLetters, Done, Trouble, shown};
use crate::dlq::{Filter, Kept, Status};

/// Letters that were named and stay as they are, each with the reason.
pub(super) struct Left(Vec<(i64, String)>);

impl Left {
    /// Of a filter's ids: those that have no letter, or a letter whose status is not `changed`.
    pub(super) async fn of(
        letters: &DeadLetters,
        filter: &Filter,
        changed: impl Fn(Status) -> bool,
    ) -> Result<Self, Trouble> {
        let ids = filter.ids.as_deref().unwrap_or_default();
        let standing = letters.standing(filter, ids).await?.into_iter();
        let left = standing.filter_map(|(id, standing)| {
            let why = match standing {
                Ok(status) if changed(status) => return None,
                Ok(Status::Failed) => "it is open".to_owned(),
                Ok(status) => Kept::Done(status).to_string(),
                Err(missing) => missing.to_string(),
            };
            Some((id, why))
        });
        Ok(Self(left.collect()))
    }

    fn value(&self) -> Value {
        self.0.iter().map(|(id, why)| json!({ "letter": id, "kept": why })).collect()
    }

    /// Adds a line for each to the text of what was done with the others.
    fn behind(&self, mut text: String) -> String {
        for (id, why) in &self.0 {
            let _ = write!(text, "\n  letter {id}: {why}");
        }
        text
    }
}

/// Counts the letters of these filters that a change leaves alone because they are ahead of the
/// database's clock, and tells of them: nobody would look for that.
pub(super) async fn ahead(
    context: &Context,
    letters: &DeadLetters,
    filters: &[Filter],
) -> Result<u64, Trouble> {
    let ahead = letters.ahead(filters).await?;
    if ahead > 0 {
        context.out.note(&format!(
            "note: {} failed at a time ahead of the database's clock, which was perhaps set \
             back: left alone unless named by id",
            shown::letters(ahead)
        ));
    }
    Ok(ahead)
}

/// A change of letters that were counted before.
pub(super) struct Change<'a> {
    pub(super) context: &'a Context,
    /// What has become of a letter: for people, and in JSON.
    pub(super) words: [&'static str; 2],
    /// How many letters were counted.
    pub(super) count: u64,
    /// Counts those that have changed, whether or not it is shown.
    pub(super) bar: &'a ProgressBar,
    pub(super) ahead: u64,
    pub(super) left: Left,
    /// How many letters were named by their ids.
    pub(super) named: usize,
}

impl Change<'_> {
    /// Waits for the work and tells how it ended. `again` counts the letters that are as they were:
    /// somebody else may have dealt with some of them. `nothing` is said behind a number of 0.
    pub(super) async fn end(
        self,
        work: impl Future<Output = crate::Result<u64>>,
        again: impl Future<Output = crate::Result<u64>>,
        nothing: &str,
    ) -> Result<Done, Trouble> {
        let ended = until_interrupted(Box::pin(async {
            work.await?;
            match self.count.saturating_sub(self.bar.position()) {
                0 => Ok(0),
                most => Ok(again.await?.min(most)),
            }
        }))
        .await;
        let (what, done) = (self.words[0], self.bar.position());
        self.bar.finish_and_clear();
        let locked = match ended {
            Ok(locked) => locked,
            Err(trouble) => {
                if done > 0 {
                    let told = shown::half_way(done, what, self.count);
                    self.context.out.result(&self.value(done, false, 0), || told);
                }
                return Err(trouble);
            }
        };
        self.context.out.result(&self.value(done, true, locked), || {
            let many = shown::letters(done);
            self.left.behind(match locked {
                1.. => format!("{many} {what}; {}", shown::locked(locked)),
                0 => format!("{many} {what}{nothing}"),
            })
        });
        Ok(if locked > 0 || done < self.named as u64 { Done::Bad } else { Done::Good })
    }

    fn value(&self, done: u64, whole: bool, locked: u64) -> Value {
        json!({
            self.words[1]: done, "whole": whole, "locked": locked, "ahead": self.ahead,
            "letters": self.left.value(),
        })
    }
}
