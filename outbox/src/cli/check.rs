//! `check`: whether the tables are as the library needs them.

use clap::Args;
use serde_json::json;

use super::output::printable_lines;
use super::{Context, Done, Trouble};
use crate::schema::Difference;

/// Compare the tables with what is needed.
///
/// Looks at columns, indexes, the CHECK of leases, encoding, partitions, the table of pauses and
/// vacuum settings, and whether a role that may claim may also settle and bury. Looks at dead
/// letters only where OUTBOX_DLQ_TABLE names their table. Exits with 1 if something is missing, and
/// prints the SQL that mends it.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Leave out the vacuum settings of PostgreSQL.
    #[arg(long)]
    no_autovacuum: bool,
}

impl Check {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let operator = context.operator()?;
        let found = operator.differences(!self.no_autovacuum).await?;
        let (names, place) = (operator.names(), operator.place());
        let (table, dlq) = (names.table(), names.dlq());
        let value = json!({ "differences": found, "table": table, "dlq": dlq, "database": place });
        context.out.result(&value, || {
            if found.is_empty() {
                return match dlq {
                    Some(dlq) => {
                        format!("the tables {table} and {dlq} in {place} are as they have to be")
                    }
                    None => format!(
                        "the table {table} in {place} is as it has to be; a dead-letter table is \
                         not configured (`OUTBOX_DLQ_TABLE`), so none was looked at"
                    ),
                };
            }
            context.differences(&place, &found)
        });
        Ok(if found.is_empty() { Done::Good } else { Done::Bad })
    }
}

impl Context {
    /// The differences for the terminal, each with the SQL that mends it.
    pub(super) fn differences(&self, place: &str, found: &[Difference]) -> String {
        let mut last = "";
        let lines = found.iter().map(|one| {
            let weight = if one.fatal { "error" } else { "warning" };
            let same = std::mem::replace(&mut last, &one.mend) == one.mend;
            let mend = ["mend it with: ", &*printable_lines(&one.mend)].concat();
            format!(
                "{}: {}\n  {}\n",
                self.out.strong(weight),
                printable_lines(&one.what),
                if same { "the same SQL mends it" } else { &mend }
            )
        });
        let first = format!("looked at {place}\n");
        std::iter::once(first).chain(lines).collect()
    }
}
