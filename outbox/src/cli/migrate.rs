//! `migrate`: makes the tables, or prints the SQL that does.

use clap::Args;
use serde_json::json;

use super::{Context, Done, Trouble};
use crate::ops::Roles;

/// Make or upgrade the tables.
///
/// Safe to repeat, and to run from many places at once. It does not make again what it has made
/// once. If something is missing or was changed since, it exits with 1 and prints the SQL that
/// mends it, as `check --no-autovacuum` does.
#[derive(Debug, Args)]
pub(super) struct Migrate {
    /// Print the SQL instead, for another migration tool.
    #[arg(long)]
    print: bool,
    /// Print the SQL that makes roles and grants each what it needs (PostgreSQL).
    ///
    /// One role publishes, one handles, one operates. The owner of the tables runs the SQL; this
    /// command changes nothing.
    #[arg(long, conflicts_with = "print")]
    print_grants: bool,
    /// The role of programs that publish.
    #[arg(long, value_name = "ROLE", default_value = "outbox_producer", requires = "print_grants")]
    producer: String,
    /// The role of programs that handle messages.
    #[arg(long, value_name = "ROLE", default_value = "outbox_consumer", requires = "print_grants")]
    consumer: String,
    /// The role of operators.
    #[arg(long, value_name = "ROLE", default_value = "outbox_operator", requires = "print_grants")]
    operator: String,
    /// Let producers move and cancel timers, too: they can then change or delete any
    /// message that waits.
    #[arg(long, requires = "print_grants")]
    producers_move_timers: bool,
}

impl Migrate {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        if self.print || self.print_grants {
            let operator = context.operator()?;
            let sql = if self.print_grants {
                let roles = Roles {
                    producer: self.producer,
                    consumer: self.consumer,
                    operator: self.operator,
                    timers: self.producers_move_timers,
                };
                Trouble::usage(&roles.problems())?;
                operator.grants(&roles)?
            } else {
                operator.migration_sql()
            };
            context.out.result(&json!({ "sql": sql }), || sql.clone());
            return Ok(Done::Good);
        }
        let operator = context.app.operator_making_files()?;
        context.out.waiting("making the tables", operator.migrate()).await?;
        let names = operator.names();
        let (table, dlq, place) = (names.table(), names.dlq_or_default(), operator.place());
        let tables = json!({ "table": table, "dlq": dlq, "database": place });
        // The record of migrations does not tell what became of the tables since.
        let found = operator.with_letters().differences(false).await?;
        context.out.result(&json!({ "migrated": tables, "differences": found }), || {
            if found.is_empty() {
                return format!("the tables {table} and {dlq} are ready in {place}");
            }
            context.differences(&place, &found)
        });
        Ok(if found.is_empty() { Done::Good } else { Done::Bad })
    }
}
