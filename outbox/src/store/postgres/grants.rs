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

/// The sequence behind the ids, whatever it is called; tables of others may have none.
const IDS: &str = "DO $$ BEGIN
    IF pg_get_serial_sequence('{table}', 'id') IS NOT NULL THEN
        EXECUTE format('GRANT SELECT ON SEQUENCE %s TO {operator}',
            pg_get_serial_sequence('{table}', 'id'));
    END IF;
END $$;";

/// As part of a string that is a format, where a percent sign and quotes mean something.
fn in_format(names: &str) -> String {
    names.replace('%', "%%").replace('\'', "''")
}

pub(crate) fn sql(names: &TableNames, roles: &Roles) -> String {
    let Roles { producer, consumer, operator, timers } = roles;
    let all = [producer, consumer, operator].map(|role| quoted(role)).join(", ");
    let texts = Sql::new(names);
    let table = names.qualified(names.table()).replace('\'', "''");
    let schema = if let Some(schema) = names.schema() {
        format!("GRANT USAGE ON SCHEMA {} TO {all};", quoted(schema))
    } else {
        SCHEMA.replace("\"outbox\"", &table).replace("{names}", &in_format(&all))
    };
    let ids = IDS.replace("{table}", &table).replace("{operator}", &in_format(&quoted(operator)));
    let timers: Cow<'_, str> =
        if *timers { format!("\n{}", texts.grants_timers).into() } else { "".into() };
    texts
        .grants
        .replace("{schema}", &schema)
        .replace("{timers}", &timers)
        .replace("{ids}", &ids)
        .replace("{producer}", &quoted(producer))
        .replace("{consumer}", &quoted(consumer))
        .replace("{operator}", &quoted(operator))
}
