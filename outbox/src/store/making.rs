//! The SQL that makes a missing table.

use crate::schema::{Database, sql};
use crate::store::names::TableNames;

/// What mends that this table is missing, which is named as SQL does. The others, which may be large
/// and in use, stay as they are; with the outbox itself comes the small table of pauses.
pub(crate) fn making(database: Database, names: &TableNames, table: &str) -> String {
    let mut making = String::from(
        "-- `outbox migrate` makes the tables of the environment, and so does \
         `outbox::migrate(&pool)`. Those of other names are made by \
         `outbox::schema::migrate_tables(&pool, &names)`, or by:\n",
    );
    making += &statements_on(database, names, table);
    if table == names.qualified(names.table()) {
        making += &statements_on(database, names, &names.qualified(&names.paused()));
    }
    making
}

/// The statements of the migrations that are about this table, without their comments.
pub(crate) fn statements_on(database: Database, names: &TableNames, table: &str) -> String {
    // An index that is made anew is the outbox's, which the statement that drops it does not name.
    let is_outbox = table == names.qualified(names.table());
    let mut statements = String::new();
    for statement in sql(database, names).split_inclusive(";\n") {
        let code = || statement.lines().filter(|line| !line.trim_start().starts_with("--"));
        let is_on =
            |line: &str| line.contains(table) || is_outbox && line.starts_with("DROP INDEX");
        if code().any(is_on) {
            for line in code().filter(|line| !line.is_empty()) {
                statements += line;
                statements.push('\n');
            }
        }
    }
    statements
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn it_is_about_one_table() {
        let names = TableNames::new("box").unwrap().in_schema("box_dlq").unwrap();
        let made = |table| making(Database::Postgres, &names, &names.qualified(table));
        let letters = made("box_dlq");
        assert!(
            letters.contains("CREATE TABLE IF NOT EXISTS \"box_dlq\".\"box_dlq\" ("),
            "{letters}"
        );
        assert!(letters.contains("ADD COLUMN IF NOT EXISTS replayed_id bigint"), "{letters}");
        assert!(!letters.contains("\"box\"") && !letters.contains("due_idx"), "{letters}");
        let rows = made("box");
        assert!(rows.contains("CREATE TABLE IF NOT EXISTS \"box_dlq\".\"box_paused\" ("), "{rows}");
        assert!(
            rows.contains("DROP INDEX IF EXISTS \"box_dlq\".\"box_due_idx\";\nCREATE"),
            "{rows}"
        );
        assert!(
            rows.contains("box_timer_id_uq") && !rows.contains("\"box_dlq\".\"box_dlq\""),
            "{rows}"
        );
        let paused = made("box_paused");
        assert_eq!(paused.matches(';').count(), 1, "{paused}");
    }
}
