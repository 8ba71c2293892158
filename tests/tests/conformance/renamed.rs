//! A table that is renamed keeps the names of its indexes, which the table in its place needs.

use outbox::TableNames;
use outbox::schema::{Database, migrate_tables, sql, validate_schema};
use outbox::testing::store::Store;

use super::names::every_statement_works;
use super::validate::{differences, mend};
use crate::bench::{Bench, Postgres, SqlBench, Sqlite};

const PAIRS: [(&str, [&str; 2]); 2] = [
    ("outbox", ["outbox_due_idx", "outbox_timer_id_uq"]),
    ("outbox_dlq", ["outbox_dlq_queue_failed_idx", "outbox_dlq_open_idx"]),
];

/// The indexes of a table that have names of their own.
async fn indexes<B: SqlBench>(b: &B, table: &str) -> i64 {
    b.number(&if B::DATABASE == Database::Sqlite {
        format!(
            "SELECT count(*) FROM sqlite_master \
             WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = '{table}'"
        )
    } else {
        format!(
            "SELECT count(*) FROM pg_index \
             WHERE indrelid = to_regclass('{table}') AND NOT indisprimary"
        )
    })
    .await
}

async fn a_migration_in_place_of_a_renamed_table_fails_and_says_what_to_do<B: SqlBench>(b: B) {
    for (table, names) in PAIRS {
        let (old, before) = (format!("{table}_old"), indexes(&b, table).await);
        b.execute(&format!("ALTER TABLE {table} RENAME TO {old}")).await;
        let told = migrate_tables(b.pool(), b.names()).await.unwrap_err().to_string();
        for name in names {
            assert!(told.contains(&format!("{name} of {old}")), "{told}");
        }
        assert_eq!((indexes(&b, &old).await, indexes(&b, table).await), (before, 0), "{told}");
        // What stands between two backticks is SQL.
        let statements: Vec<_> = told.split('`').skip(1).step_by(2).collect();
        assert_eq!(statements.len(), usize::try_from(before).unwrap(), "{told}");
        for statement in statements {
            b.execute(statement).await;
        }
        // Whoever writes to it has the indexes that it takes.
        assert_eq!(indexes(&b, &old).await, before, "{told}");
        migrate_tables(b.pool(), b.names()).await.unwrap();
        assert_eq!(indexes(&b, table).await, before);
    }
    validate_schema(b.pool(), b.names(), true).await.unwrap();
    every_statement_works(&b).await;
}

/// As an earlier version's migration, or the SQL by hand, leaves them: an index whose name is taken
/// is not made.
async fn what_is_told_of_tables_in_place_of_renamed_ones_mends_them<B: SqlBench>(b: B) {
    for (table, _) in PAIRS {
        b.execute(&format!("ALTER TABLE {table} RENAME TO {table}_old")).await;
    }
    b.execute(&sql(B::DATABASE, b.names())).await;
    let found = differences(&b, true).await;
    let missing = if B::DATABASE == Database::Sqlite { 6 } else { 5 };
    assert_eq!(found.len(), missing, "{found:#?}");
    for one in &found {
        assert!(one.what.contains(" is an index of outbox"), "{found:#?}");
        assert!(one.what.contains("_old"), "{found:#?}");
    }
    mend(&b, &found).await;
    // Nothing is left to do, so it does not matter to a migration who has which name.
    migrate_tables(b.pool(), b.names()).await.unwrap();
    every_statement_works(&b).await;
}

/// An index that is to be made anew is dropped first, wherever the path finds it.
async fn an_index_of_another_schema_is_not_dropped(b: Postgres) {
    b.execute("ALTER TABLE outbox RENAME TO outbox_old").await;
    let before = indexes(&b, "outbox_old").await;
    let first = format!("{}_first", b.schema());
    b.execute(&format!("CREATE SCHEMA {first}")).await;
    let path = format!("{first},{}", b.schema());
    let other = b.on_search_path(&path, TableNames::default().with_dlq("outbox_dlq").unwrap());
    let told = migrate_tables(other.pool(), other.names()).await.unwrap_err().to_string();
    assert!(told.contains("outbox_due_idx of outbox_old"), "{told}");
    // An index of that name would be made beside this one.
    assert!(!told.contains("outbox_timer_id_uq"), "{told}");
    assert_eq!(indexes(&b, "outbox_old").await, before);
    other.store().close().await;
    other.pool().close().await;
    b.execute(&format!("DROP SCHEMA {first} CASCADE")).await;
}

/// As after a migration under the new name, which makes indexes of letters once more.
async fn an_index_that_its_table_has_twice_is_dropped(b: Postgres) {
    let before = indexes(&b, "outbox_dlq").await;
    b.execute("ALTER TABLE outbox_dlq RENAME TO letters").await;
    let names = TableNames::default().with_dlq("letters").unwrap();
    migrate_tables(b.pool(), &names).await.unwrap();
    assert!(indexes(&b, "letters").await > before);
    let told = migrate_tables(b.pool(), b.names()).await.unwrap_err().to_string();
    assert!(told.contains("DROP INDEX"), "{told}");
    for statement in told.split('`').skip(1).step_by(2) {
        b.execute(statement).await;
    }
    migrate_tables(b.pool(), b.names()).await.unwrap();
    assert_eq!((indexes(&b, "letters").await, indexes(&b, "outbox_dlq").await), (before, before));
}

async fn a_table_under_a_new_name_gets_no_second_set_of_indexes(b: Postgres) {
    let before = indexes(&b, "outbox").await;
    for (table, _) in PAIRS {
        let new = table.replace("outbox", "events");
        b.execute(&format!("ALTER TABLE {table} RENAME TO {new}")).await;
    }
    let names = TableNames::new("events").unwrap().with_dlq("events_dlq").unwrap();
    let other = b.with_names(names);
    migrate_tables(other.pool(), other.names()).await.unwrap();
    assert_eq!(indexes(&b, "events").await, before);
    validate_schema(other.pool(), other.names(), true).await.unwrap();
    every_statement_works(&other).await;
    other.store().close().await;
}

/// The table that was renamed before last has the names that this one would have had.
async fn a_table_that_is_renamed_again_and_again_keeps_its_indexes(b: Sqlite) {
    let before = indexes(&b, "outbox").await;
    b.execute("ALTER TABLE outbox RENAME TO outbox_old").await;
    for round in 0..3 {
        let told = migrate_tables(b.pool(), b.names()).await.unwrap_err().to_string();
        for statement in told.split('`').skip(1).step_by(2) {
            b.execute(statement).await;
        }
        migrate_tables(b.pool(), b.names()).await.unwrap();
        b.execute(&format!("ALTER TABLE outbox_old RENAME TO outbox_{round}")).await;
        assert_eq!(indexes(&b, &format!("outbox_{round}")).await, before);
        b.execute("ALTER TABLE outbox RENAME TO outbox_old").await;
    }
}

mod both {
    use super::*;

    cases! {
        databases only, "memory has no tables to rename":
        a_migration_in_place_of_a_renamed_table_fails_and_says_what_to_do,
        what_is_told_of_tables_in_place_of_renamed_ones_mends_them,
    }
}

mod on_postgres {
    use super::*;

    cases! {
        postgres only, "schemas are PostgreSQL's, as is a migration that finds indexes by what they do":
        an_index_of_another_schema_is_not_dropped,
        an_index_that_its_table_has_twice_is_dropped,
        a_table_under_a_new_name_gets_no_second_set_of_indexes,
    }
}

mod on_sqlite {
    use super::*;

    cases! {
        sqlite only, "PostgreSQL renames indexes":
        a_table_that_is_renamed_again_and_again_keeps_its_indexes,
    }
}
