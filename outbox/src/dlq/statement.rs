//! Statements over the letters of a filter. They have the conditions of the filter and no
//! others, so that the planner sees which index serves them.

use std::sync::Arc;

use crate::store::names::TableNames;

/// Marks where a statement has its conditions.
const FILTER: &str = "-- the filter\n";
/// Marks a line that belongs to one condition of a filter.
const IF: &str = " -- if ";

/// The text of a statement. A line that ends in `-- if WORD` stays only if the word is wanted.
/// Parameters keep their numbers, even without their lines: drivers tell the types.
pub(crate) fn narrowed(
    names: &TableNames,
    statement: &str,
    conditions: &str,
    wants: impl Fn(&str) -> bool,
) -> Arc<str> {
    let whole = statement.replace(FILTER, conditions);
    let kept = |line: &&str| line.rsplit_once(IF).is_none_or(|(_, word)| wants(word.trim()));
    let text: String = whole.split_inclusive('\n').filter(kept).collect();
    names.sql(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_has_the_conditions_that_are_wanted() {
        let text = "SELECT id FROM \"outbox_dlq\"\nWHERE true\n-- the filter\nLIMIT 1";
        let conditions = "  AND a = $1 -- if a\n  AND b = $2 -- if b\n";
        let only = |word: &'static str| {
            narrowed(&TableNames::default(), text, conditions, move |one| one == word)
        };
        let with = |line: &str| format!("SELECT id FROM \"outbox_dlq\"\nWHERE true\n{line}LIMIT 1");
        assert_eq!(*only("none"), *with(""));
        assert_eq!(*only("b"), *with("  AND b = $2 -- if b\n"));
    }
}
