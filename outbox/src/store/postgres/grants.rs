//! The SQL that grants three roles what they need: producer, consumer and operator. It is made for
//! an administrator to read and run.

use super::rights::ID_SEQUENCE;
use crate::ops::Roles;
use crate::store::names::TableNames;
use crate::store::template::{block, quoted};

/// Resolved where it runs: if no schema is named, the tables' own schema is looked up there.
const SCHEMA: &str = "BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO {names}', (
        SELECT nspname FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid = '{table}'::regclass));
END";

/// The sequence behind the ids, whatever its name is. Tables that others made may have none.
const IDS: &str = "BEGIN
    IF pg_get_serial_sequence('{table}', 'id') IS NOT NULL THEN
        EXECUTE format('GRANT SELECT ON SEQUENCE %s TO {operator}',
            pg_get_serial_sequence('{table}', 'id'));
    END IF;
END";

/// An insert needs more rights on a sequence that does not belong to an identity column, such as
/// those of a table that Python made.
const SERIAL: &str = "DECLARE serial text;
BEGIN
    SELECT ids.name INTO serial FROM (
{ids}) AS ids
    WHERE NOT ids.is_identity;
    IF serial IS NOT NULL THEN
        EXECUTE format('GRANT USAGE ON SEQUENCE %s TO {roles}', serial);
    END IF;
END";

/// Escapes names for a string that is a format, where a percent sign and quotes mean something.
fn in_format(names: &str) -> String {
    names.replace('%', "%%").replace('\'', "''")
}

pub(crate) fn sql(names: &TableNames, roles: &Roles) -> String {
    let [producer, consumer, operator] =
        [&roles.producer, &roles.consumer, &roles.operator].map(|role| quoted(role));
    let all = [&*producer, &consumer, &operator].join(", ");
    let table = names.qualified(names.table()).replace('\'', "''");
    let schema = if let Some(schema) = names.schema() {
        let schema = quoted(schema);
        let grant = "GRANT USAGE ON SCHEMA {schema} TO {all};";
        names.sql_with(grant, &[("{schema}", &schema), ("{all}", &all)]).to_string()
    } else {
        block(&names.sql_with(SCHEMA, &[("{table}", &table), ("{names}", &in_format(&all))]))
    };
    let marks = [("{table}", &*table), ("{operator}", &in_format(&operator))];
    let ids = block(&names.sql_with(IDS, &marks));
    let serial = |table: &str, roles: &str| {
        let ids = names.sql_with(ID_SEQUENCE, &[("{table}", &format!("'{table}'"))]);
        let marks = [("{ids}", &*ids), ("{roles}", &in_format(roles))];
        block(&names.sql_with(SERIAL, &marks))
    };
    let serials = serial(&table, &all);
    let letters = names.qualified(&names.dlq_or_default()).replace('\'', "''");
    let letter_serials = serial(&letters, &consumer);
    let mut values = vec![
        ("{schema}", &*schema),
        ("{ids}", &ids),
        ("{serials}", &serials),
        ("{letter_serials}", &letter_serials),
        ("{producer}", &producer),
        ("{consumer}", &consumer),
        ("{operator}", &operator),
    ];
    let mut timers = String::new();
    if roles.timers {
        timers = format!("\n{}", names.sql_with(include_str!("sql/grants_timers.sql"), &values));
    }
    values.push(("{timers}", &timers));
    names.sql_with(include_str!("sql/grants.sql"), &values).to_string()
}
