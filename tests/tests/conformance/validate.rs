//! Every difference between the tables and what the library needs is found, and
//! the SQL that is told with it mends it.

use std::time::Duration;

use outbox::schema::{Difference, migrate_tables, sql, validate_schema};
use outbox::testing::store::Store;
use outbox::{Error, Outgoing, TableNames};

use super::names::every_statement_works;
use crate::bench::{RawLetter, RawRow, SqlBench, Steps, death, retry};

const HOUR: Duration = Duration::from_secs(3600);

pub async fn differences<B: SqlBench>(b: &B, autovacuum: bool) -> Vec<Difference> {
    match validate_schema(b.pool(), b.names(), autovacuum).await {
        Ok(()) => Vec::new(),
        Err(Error::Schema(mismatch)) => mismatch.differences,
        Err(error) => panic!("{error}"),
    }
}

/// Expects these differences, each by a part of its text and whether it is fatal,
/// and no others.
pub async fn expect<B: SqlBench>(b: &B, expected: &[(&str, bool)]) -> Vec<Difference> {
    let found = differences(b, true).await;
    let same = |one: &Difference, (text, fatal): (&str, bool)| {
        one.what.contains(text) && one.fatal == fatal
    };
    for &expected in expected {
        let times = found.iter().filter(|one| same(one, expected)).count();
        assert_eq!(times, 1, "{expected:?} in {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    found
}

/// Runs the SQL that was told; then nothing is left to tell.
pub async fn mend<B: SqlBench>(b: &B, found: &[Difference]) {
    let mut last = "";
    for Difference { mend, .. } in found {
        if mend != last {
            b.execute(mend).await;
        }
        last = mend;
    }
    assert_eq!(differences(b, true).await, []);
}

/// Rows with something in every column.
pub async fn fill<B: SqlBench>(b: &B) -> (Vec<RawRow>, Vec<RawLetter>) {
    b.put_many("q", 3).await;
    let held = b.take_many("q", 3).await;
    b.store().retry(&[retry(held[0], HOUR)]).await.unwrap();
    b.store().bury(&[death(held[1])]).await.unwrap();
    b.send(Outgoing::new("q", &"é").timer_id("t").delay(HOUR)).await;
    (b.rows().await, b.letters().await)
}

pub async fn empty<B: SqlBench>(b: &B) {
    let quoted = |name: &str| match b.names().schema() {
        Some(schema) => format!("{}.{}", quoted(schema), quoted(name)),
        None => quoted(name),
    };
    for table in [b.names().table(), b.names().dlq().unwrap()] {
        b.execute(&format!("DELETE FROM {}", quoted(table))).await;
    }
}

/// Tables as they were made first.
pub async fn anew<B: SqlBench>(b: &B) {
    b.execute("DROP TABLE outbox; DROP TABLE outbox_dlq").await;
    b.execute(&sql(B::DATABASE, b.names())).await;
}

pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Breaks tables that have rows; the SQL that is told mends them, and keeps them.
pub async fn mended<B: SqlBench>(b: &B, breaking: &str, expected: &[(&str, bool)]) {
    let before = fill(b).await;
    b.execute(breaking).await;
    let found = expect(b, expected).await;
    mend(b, &found).await;
    assert_eq!((b.rows().await, b.letters().await), before);
    empty(b).await;
    every_statement_works(b).await;
}

async fn a_migrated_database_has_nothing_to_tell<B: SqlBench>(b: B) {
    expect(&b, &[]).await;
    let without = b.without_dlq();
    assert!(without.store().validate(true).await.unwrap().differences.is_empty());
    without.store().close().await;
}

async fn a_missing_table<B: SqlBench>(b: B) {
    b.execute("DROP TABLE outbox").await;
    let found = expect(&b, &[("does not exist", true)]).await;
    mend(&b, &found).await;
    every_statement_works(&b).await;
}

async fn both_tables_missing<B: SqlBench>(b: B) {
    b.execute("DROP TABLE outbox; DROP TABLE outbox_dlq").await;
    let found = differences(&b, true).await;
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].what.contains("outbox") && found[1].what.contains("outbox_dlq"));
    mend(&b, &found).await;
    every_statement_works(&b).await;
}

async fn a_missing_dead_letter_table<B: SqlBench>(b: B) {
    b.execute("DROP TABLE outbox_dlq").await;
    let found = expect(&b, &[("outbox_dlq", true)]).await;
    let without = b.with_names(TableNames::default());
    assert_eq!(differences(&without, true).await, [], "nobody asked for it");
    without.store().close().await;
    mend(&b, &found).await;
}

async fn a_missing_index<B: SqlBench>(b: B) {
    mended(&b, "DROP INDEX outbox_due_idx", &[("(queue, next_attempt_at, id)", false)]).await;
}

async fn a_missing_timer_index<B: SqlBench>(b: B) {
    mended(&b, "DROP INDEX outbox_timer_id_uq", &[("(queue, timer_id)", true)]).await;
}

async fn a_missing_index_of_dead_letters<B: SqlBench>(b: B) {
    mended(&b, "DROP INDEX outbox_dlq_queue_failed_idx", &[("(queue, failed_at)", false)]).await;
}

async fn a_missing_index_of_operators<B: SqlBench>(b: B) {
    let breaking = "DROP INDEX outbox_dlq_status_idx; DROP INDEX outbox_dlq_open_idx; \
        DROP INDEX outbox_dlq_group_idx";
    let expected = [
        ("(status, failed_at, id)", false),
        ("(queue, failed_at, id) WHERE status = 'failed'", false),
        ("(fingerprint, failed_at, id) WHERE status = 'failed'", false),
    ];
    mended(&b, breaking, &expected).await;
}

/// As in tables that Python made: all works, but nothing can be paused.
async fn pauses_are_heeded_as_long_as_their_table_is_there<B: SqlBench>(b: B) {
    b.put_many("q", 3).await;
    b.execute("INSERT INTO outbox_paused (queue) VALUES ('q')").await;
    for (sql, claimed) in [
        ("SELECT 1", 0),
        ("ALTER TABLE outbox_paused RENAME TO put_away", 3),
        ("ALTER TABLE put_away RENAME TO outbox_paused", 0),
    ] {
        b.execute(sql).await;
        b.store().validate(false).await.unwrap();
        assert_eq!(b.claim_ids(&["q"], 3).await.len(), claimed, "{sql}");
        b.execute("UPDATE outbox SET acquired_token = NULL, acquired_at = NULL").await;
    }
}

async fn a_missing_table_of_pauses<B: SqlBench>(b: B) {
    mended(&b, "DROP TABLE outbox_paused", &[("queues cannot be paused", false)]).await;
    b.execute("DROP TABLE outbox_paused").await;
    expect(&b, &[("queues cannot be paused", false)]).await;
    empty(&b).await;
    let fresh = b.with_names(b.names().clone());
    fresh.store().validate(false).await.unwrap();
    every_statement_works(&fresh).await;
    fresh.store().close().await;
}

async fn a_timer_index_that_is_not_unique<B: SqlBench>(b: B) {
    let index = "DROP INDEX outbox_timer_id_uq; \
        CREATE INDEX outbox_timer_id_uq ON outbox (queue, timer_id) WHERE timer_id IS NOT NULL";
    mended(&b, index, &[("(queue, timer_id)", true)]).await;
}

async fn a_timer_index_with_another_predicate<B: SqlBench>(b: B) {
    let index = "DROP INDEX outbox_timer_id_uq; CREATE UNIQUE INDEX outbox_timer_id_uq \
        ON outbox (queue, timer_id) WHERE acquired_token IS NULL";
    mended(&b, index, &[("(queue, timer_id)", true)]).await;
}

/// It does the same, and costs more.
async fn a_timer_index_over_all_rows_is_not_fatal<B: SqlBench>(b: B) {
    let index = "DROP INDEX outbox_timer_id_uq; \
        CREATE UNIQUE INDEX outbox_timer_id_uq ON outbox (queue, timer_id)";
    b.execute(index).await;
    let found = expect(&b, &[("(queue, timer_id)", false)]).await;
    every_statement_works(&b).await;
    mend(&b, &found).await;
}

async fn an_index_with_a_predicate<B: SqlBench>(b: B) {
    let index = "DROP INDEX outbox_due_idx; CREATE INDEX outbox_due_idx \
        ON outbox (queue, next_attempt_at, id) WHERE acquired_token IS NULL";
    mended(&b, index, &[("(queue, next_attempt_at, id)", false)]).await;
}

async fn an_index_on_other_columns<B: SqlBench>(b: B) {
    for columns in ["queue, next_attempt_at", "next_attempt_at, queue, id", "queue"] {
        let index =
            format!("DROP INDEX outbox_due_idx; CREATE INDEX outbox_due_idx ON outbox ({columns})");
        mended(&b, &index, &[("(queue, next_attempt_at, id)", false)]).await;
        empty(&b).await;
    }
}

async fn an_index_in_another_order<B: SqlBench>(b: B) {
    let index = "DROP INDEX outbox_due_idx; \
        CREATE INDEX outbox_due_idx ON outbox (queue, next_attempt_at DESC, id)";
    mended(&b, index, &[("(queue, next_attempt_at, id)", false)]).await;
}

async fn an_index_may_have_another_name<B: SqlBench>(b: B) {
    b.execute(
        "DROP INDEX outbox_due_idx; DROP INDEX outbox_timer_id_uq; \
         create index mine on outbox(queue,next_attempt_at,id); \
         create index mine_too on outbox(queue,next_attempt_at,id) \
            where (next_attempt_at is not null); \
         create unique index \"where\" on outbox(queue,timer_id) where (timer_id is not null)",
    )
    .await;
    expect(&b, &[]).await;
}

/// An index of somebody else is theirs, whatever it looks like.
async fn indexes_of_others_are_left_alone<B: SqlBench>(b: B) {
    b.execute(
        "CREATE INDEX outbox_due_idx2 ON outbox (queue, timer_id); \
         CREATE INDEX theirs ON outbox (queue, next_attempt_at, id) WHERE acquired_token IS NULL; \
         CREATE UNIQUE INDEX once ON outbox (queue, next_attempt_at, id); \
         DROP INDEX outbox_due_idx; DROP INDEX outbox_timer_id_uq",
    )
    .await;
    let found = differences(&b, true).await;
    assert_eq!(found.len(), 2, "{found:#?}");
    mend(&b, &found).await;
    b.execute("DROP INDEX outbox_due_idx2; DROP INDEX theirs; DROP INDEX once").await;
}

async fn further_columns_are_fine<B: SqlBench>(b: B) {
    b.execute(
        "ALTER TABLE outbox ADD COLUMN \"of \"\"others\"\"\" text; \
         ALTER TABLE outbox ADD COLUMN tenant integer NOT NULL DEFAULT 7; \
         ALTER TABLE outbox_dlq ADD COLUMN tenant integer NOT NULL DEFAULT 7",
    )
    .await;
    expect(&b, &[]).await;
    every_statement_works(&b).await;
}

async fn every_difference_is_told_at_once<B: SqlBench>(b: B) {
    b.execute(
        "DROP INDEX outbox_due_idx; DROP INDEX outbox_timer_id_uq; \
         DROP INDEX outbox_dlq_queue_failed_idx; DROP INDEX outbox_dlq_group_idx; \
         ALTER TABLE outbox DROP COLUMN first_attempt_at; \
         ALTER TABLE outbox DROP COLUMN headers; \
         ALTER TABLE outbox_dlq DROP COLUMN note; \
         ALTER TABLE outbox_dlq DROP COLUMN fingerprint",
    )
    .await;
    let expected = [
        ("no column first_attempt_at", true),
        ("no column headers", true),
        ("(queue, next_attempt_at, id)", false),
        ("(queue, timer_id)", true),
        ("no column note", true),
        ("no column fingerprint", true),
        ("(queue, failed_at)", false),
        ("(fingerprint, failed_at, id)", false),
    ];
    let found = expect(&b, &expected).await;
    let error = validate_schema(b.pool(), b.names(), true).await.unwrap_err().to_string();
    for one in &found {
        assert!(error.contains(&one.what) && error.contains(&one.mend), "{error}");
    }
    let store = b.store().validate(true).await.unwrap();
    assert_eq!(store.differences, found);
    mend(&b, &found).await;
    every_statement_works(&b).await;
}

async fn tables_of_any_name_are_mended<B: SqlBench>(b: B) {
    let names = TableNames::new("my \"out\"' ON (box)").unwrap().with_dlq("INDEX '\"d\"").unwrap();
    let other = b.with_names(names);
    migrate_tables(other.pool(), other.names()).await.unwrap();
    let name = |end: &str| quoted(&format!("{}{end}", other.names().table()));
    let broken = format!(
        "DROP INDEX {}; DROP INDEX {}; DROP INDEX {}; CREATE INDEX {} ON {} (queue); \
         ALTER TABLE {} DROP COLUMN first_attempt_at; ALTER TABLE {} DROP COLUMN note",
        name("_due_idx"),
        name("_timer_id_uq"),
        quoted("INDEX '\"d\"_queue_failed_idx"),
        name("_due_idx"),
        name(""),
        name(""),
        quoted("INDEX '\"d\""),
    );
    b.execute(&broken).await;
    let found = differences(&other, true).await;
    assert_eq!(found.len(), 5, "{found:#?}");
    mend(&other, &found).await;
    every_statement_works(&other).await;
    other.store().close().await;
}

cases! {
    databases only, "memory has no tables to look at":
    a_migrated_database_has_nothing_to_tell,
    a_missing_table,
    both_tables_missing,
    a_missing_dead_letter_table,
    a_missing_index,
    a_missing_timer_index,
    a_missing_index_of_dead_letters,
    a_missing_index_of_operators,
    a_missing_table_of_pauses,
    pauses_are_heeded_as_long_as_their_table_is_there,
    a_timer_index_that_is_not_unique,
    a_timer_index_with_another_predicate,
    a_timer_index_over_all_rows_is_not_fatal,
    an_index_with_a_predicate,
    an_index_on_other_columns,
    an_index_in_another_order,
    an_index_may_have_another_name,
    indexes_of_others_are_left_alone,
    further_columns_are_fine,
    every_difference_is_told_at_once,
    tables_of_any_name_are_mended,
}
