//! Letters that stay as they are: named ones that a command cannot change, and those ahead of the
//! clock.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Context, DeadLetters, Trouble, shown};
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

    pub(super) fn value(&self) -> Value {
        self.0.iter().map(|(id, why)| json!({ "letter": id, "kept": why })).collect()
    }

    /// Adds a line for each to the text of what was done with the others.
    pub(super) fn behind(&self, mut text: String) -> String {
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
