//! The SQL that gives roles what they need.

use std::borrow::Cow;

use crate::ops::Roles;
use crate::store::names::{TableNames, quoted};
use crate::store::statements;

statements! {
    struct Sql in "sql" { grants, grants_timers }
}

/// Resolved where it runs: without a name, the schema is where the tables are found.
const SCHEMA: &str = "DO $$ BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO {names}', (
        SELECT nspname FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid = '\"outbox\"'::regclass));
END $$;";

pub(crate) fn sql(names: &TableNames, roles: &Roles) -> String {
    let Roles { producer, consumer, operator, timers } = roles;
    let all = [producer, consumer, operator].map(|role| quoted(role)).join(", ");
    let texts = Sql::new(names);
    let schema = if let Some(schema) = names.schema() {
        format!("GRANT USAGE ON SCHEMA {} TO {all};", quoted(schema))
    } else {
        // In a string, where a percent sign and quotes mean something.
        let listed = all.replace('%', "%%").replace('\'', "''");
        let table = names.qualified(names.table()).replace('\'', "''");
        SCHEMA.replace("\"outbox\"", &table).replace("{names}", &listed)
    };
    let timers: Cow<'_, str> =
        if *timers { format!("\n{}", texts.grants_timers).into() } else { "".into() };
    texts
        .grants
        .replace("{schema}", &schema)
        .replace("{timers}", &timers)
        .replace("{producer}", &quoted(producer))
        .replace("{consumer}", &quoted(consumer))
        .replace("{operator}", &quoted(operator))
}
