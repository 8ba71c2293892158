//! `migrate`: makes the tables, or prints the SQL that does.

use clap::Args;
use serde_json::json;

use super::{Context, Done, Trouble};

/// Make or upgrade the tables. Safe to repeat, and to run from many places at once.
#[derive(Debug, Args)]
pub(super) struct Migrate {
    /// Print the SQL instead, for another migration tool.
    #[arg(long)]
    print: bool,
}

impl Migrate {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        if self.print {
            let sql = context.operator()?.migration_sql();
            context.out.result(&json!({ "sql": sql }), || sql.clone());
            return Ok(Done::Good);
        }
        let operator = context.app.operator_making_files()?;
        operator.migrate().await?;
        let names = operator.names();
        let tables = json!({ "table": names.table(), "dlq": names.dlq_or_default() });
        context.out.result(&json!({ "migrated": tables }), || {
            format!("the tables {} and {} are ready", names.table(), names.dlq_or_default())
        });
        Ok(Done::Good)
    }
}
