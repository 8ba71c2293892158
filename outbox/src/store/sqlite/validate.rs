//! What is wrong with the tables, and the SQL that mends it. An app looks before it starts, and
//! does not start on a difference that would make its statements fail.

use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};

use super::indexes::Index;
use super::taken::{OTHERS, Other};
use crate::error::StoreError;
use crate::schema::{Column, DLQ, Database, IDENTITY, NOW, OUTBOX, PAUSED, SchemaMismatch};
use crate::store::answers::Columns as _;
use crate::store::making::making;
use crate::store::names::TableNames;
use crate::store::template::quoted;

/// The default of columns that hold times, in SQLite's words.
pub(super) const NOW_HERE: &str = "(CAST(unixepoch('subsec') * 1000000 AS INTEGER))";

/// Compares the tables with what the statements need.
pub(super) async fn validate(
    pool: &SqlitePool,
    names: &TableNames,
) -> Result<SchemaMismatch, StoreError> {
    let mut found = SchemaMismatch::default();
    if let Some(schema) = names.schema() {
        let what = format!("SQLite has no schema {schema:?}");
        found.add(true, what, "name no schema (`OUTBOX_SCHEMA`)");
        return Ok(found);
    }
    let mut connection = pool.acquire().await.map_err(StoreError::of("read the schema"))?;
    let encoding: String = sqlx::query_scalar("PRAGMA encoding")
        .fetch_one(&mut *connection)
        .await
        .map_err(StoreError::of("read the schema"))?;
    if encoding != "UTF-8" {
        // The ids of a batch come as bytes: in another encoding each would be read as 0.
        let what = format!("the file stores its texts in {encoding}, but they have to be in UTF-8");
        found.add(true, what, "use a new file: SQLite never changes the encoding of an old one");
        return Ok(found);
    }
    let mut table = Table::read(&mut connection, names.table()).await?;
    if table.exists(names, &mut found) {
        table.compare(&OUTBOX);
        table.words(true);
        let sql =
            names.sql("CREATE INDEX \"outbox_due_idx\" ON \"outbox\" (queue, next_attempt_at, id)");
        let name = format!("{}_due_idx", names.table());
        table.index(false, &name, "queue,next_attempt_at,id", &sql);
        let sql = names.sql("CREATE UNIQUE INDEX \"outbox_timer_id_uq\" ON \"outbox\" (queue, timer_id) WHERE timer_id IS NOT NULL");
        let name = format!("{}_timer_id_uq", names.table());
        // ON CONFLICT finds no other index, and every publish has such a clause.
        table.index(true, &name, "queue,timer_id", &sql);
        if !bare(&table.sql).contains("checkacquired_tokenisnull=acquired_atisnull") {
            table.add(false, "lacks the CHECK that a lease is complete".into(), None);
        }
        table.report(names, "outbox", &OUTBOX, &mut found);
    }
    let paused = names.paused();
    let mut table = Table::read(&mut connection, &paused).await?;
    if table.columns.is_empty() {
        found.lacks_pauses(Database::Sqlite, names);
    } else {
        table.compare(&PAUSED);
        table.report(names, "outbox_paused", &PAUSED, &mut found);
    }
    let Some(dlq) = names.dlq() else { return Ok(found) };
    let mut table = Table::read(&mut connection, dlq).await?;
    if table.exists(names, &mut found) {
        table.compare(&DLQ);
        table.words(false);
        if !bare(&table.sql).contains("checkstatusin'failed','resolved','ignored'") {
            table.add(false, "lacks the CHECK of what a status may be".into(), None);
        }
        for (name, columns, rows) in [
            ("queue_failed", "queue,failed_at", ""),
            ("status", "status,failed_at,id", ""),
            ("open", "queue,failed_at,id", " WHERE status = 'failed'"),
            ("group", "fingerprint,failed_at,id", " WHERE status = 'failed'"),
        ] {
            let sql = format!(
                "CREATE INDEX \"outbox_dlq_{name}_idx\" ON \"outbox_dlq\" ({}){rows}",
                columns.replace(',', ", ")
            );
            let (index, sql) = (format!("{dlq}_{name}_idx"), names.sql(&sql));
            table.index(false, &index, columns, &sql);
            // Statements for operators ask for this index by its name: INDEXED BY.
            if name == "open" {
                table.named(&index, &sql);
            }
        }
        table.report(names, "outbox_dlq", &DLQ, &mut found);
    }
    Ok(found)
}

/// A table as it is, and what is wrong with it so far.
pub(super) struct Table<'a> {
    pub(super) name: &'a str,
    /// Its `CREATE TABLE`.
    sql: String,
    pub(super) strict: bool,
    pub(super) columns: Vec<Actual>,
    pub(super) indexes: Vec<Index>,
    /// The indexes of other tables.
    pub(super) others: Vec<Other>,
    /// The names of its triggers.
    pub(super) triggers: Vec<String>,
    /// Of each difference, whether it is fatal, what it is, and the SQL that mends it. Without such
    /// SQL the table is made anew.
    pub(super) wrong: Vec<(bool, String, Option<String>)>,
}

pub(super) struct Actual {
    pub(super) name: String,
    pub(super) kind: String,
    not_null: bool,
    pub(super) default: Option<String>,
    key: bool,
}

/// Whoever made the table wrote these texts, which may not be UTF-8: there may be a comment, or the
/// name of a trigger.
impl Actual {
    fn read(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            name: row.text(0)?,
            kind: row.text(1)?,
            not_null: row.flag(2)?,
            default: row.maybe(3, SqliteRow::text)?,
            key: row.flag(4)?,
        })
    }
}

impl<'a> Table<'a> {
    async fn read(connection: &mut SqliteConnection, name: &'a str) -> Result<Self, StoreError> {
        let read = Self::look(connection, name).await;
        read.map_err(StoreError::of("read the schema"))
    }

    async fn look(connection: &mut SqliteConnection, name: &'a str) -> sqlx::Result<Self> {
        let mut rows =
            async |sql| sqlx::query(sql).bind(name.to_owned()).fetch_all(&mut *connection).await;
        let made =
            rows("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?1 COLLATE NOCASE")
                .await?;
        let strict =
            rows("SELECT strict FROM pragma_table_list WHERE schema = 'main' AND name = ?1 COLLATE NOCASE").await?;
        let columns = rows(
            "SELECT name, type, \"notnull\" OR pk > 0, dflt_value, pk > 0 \
             FROM pragma_table_info(?1, 'main')",
        )
        .await?;
        let indexes = rows(
            "SELECT i.name, i.\"unique\", m.sql, i.partial, \
                (SELECT group_concat(name) FROM (SELECT name FROM pragma_index_xinfo(i.name, 'main') \
                 WHERE key AND NOT \"desc\" ORDER BY seqno)) \
             FROM pragma_index_list(?1, 'main') AS i \
             LEFT JOIN sqlite_master AS m ON m.type = 'index' AND m.name = i.name",
        )
        .await?;
        let others = rows(OTHERS).await?;
        let triggers = rows(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' \
             AND tbl_name = ?1 COLLATE NOCASE ORDER BY name",
        )
        .await?;
        Ok(Self {
            name,
            sql: made.first().map(|row| row.text(0)).transpose()?.unwrap_or_default(),
            strict: strict.first().map(|row| row.flag(0)).transpose()?.unwrap_or_default(),
            columns: columns.iter().map(Actual::read).collect::<Result<_, _>>()?,
            indexes: indexes.iter().map(Index::read).collect::<Result<_, _>>()?,
            others: others.iter().map(Other::read).collect::<Result<_, _>>()?,
            triggers: triggers.iter().map(|row| row.text(0)).collect::<Result<_, _>>()?,
            wrong: Vec::new(),
        })
    }

    fn exists(&self, names: &TableNames, found: &mut SchemaMismatch) -> bool {
        if self.columns.is_empty() {
            let mend = making(Database::Sqlite, names, &names.qualified(self.name));
            found.add(true, format!("the table {} does not exist", self.name), mend);
        }
        !self.columns.is_empty()
    }

    pub(super) fn add(&mut self, fatal: bool, what: String, mend: Option<String>) {
        self.wrong.push((fatal, what, mend));
    }

    fn compare(&mut self, expected: &[Column]) {
        for Column { name, sqlite: kind, not_null, claimed, default, .. } in expected {
            let Some(actual) = self.columns.iter().find(|actual| actual.name == *name) else {
                // SQLite can add no other column to a table that has rows.
                let addable = !not_null || !matches!(*default, "" | IDENTITY | NOW);
                let null =
                    if *not_null { format!(" NOT NULL DEFAULT {default}") } else { String::new() };
                let table = quoted(self.name);
                let mend =
                    addable.then(|| format!("ALTER TABLE {table} ADD COLUMN {name} {kind}{null}"));
                self.add(true, format!("has no column {name}"), mend);
                continue;
            };
            let has_default = actual.default.is_some() || actual.key;
            if !actual.kind.eq_ignore_ascii_case(kind) {
                let what = format!("column {name} is {} instead of {kind}", actual.kind);
                self.add(true, what, None);
            } else if actual.not_null != *not_null {
                let is = if actual.not_null { "NOT NULL" } else { "nullable" };
                self.add(!not_null || *claimed, format!("column {name} is {is}"), None);
            } else if !default.is_empty() && !has_default {
                self.add(*default != NOW, format!("column {name} has no default"), None);
            } else if *default == IDENTITY && !actual.key {
                self.add(true, format!("column {name} is not the primary key"), None);
            }
        }
        let further = |actual: &&Actual| !expected.iter().any(|column| column.name == actual.name);
        let required = |actual: &&Actual| actual.not_null && actual.default.is_none();
        let further = self.columns.iter().filter(further).filter(required);
        let names: Vec<_> = further.map(|actual| actual.name.clone()).collect();
        for name in names {
            let what =
                format!("has a further column {name} without a default, which makes inserts fail");
            self.add(true, what, None);
        }
    }

    /// The words of a definition that tools leave out when they make a table anew for a column of
    /// their own.
    fn words(&mut self, claimed: bool) {
        if !self.strict {
            let what = "is not STRICT: a value of another type in a row would stop its queue";
            self.add(claimed, what.into(), None);
        }
        let keyed = self.columns.iter().any(|actual| actual.key && actual.name == "id");
        if keyed && !counts_up(&self.sql) {
            let what = "lacks AUTOINCREMENT: ids of rows that are gone would be used again";
            self.add(false, what.into(), None);
        }
    }

    /// Hands over what is wrong. If one difference needs the table to be made anew, that mends all
    /// the others.
    fn report(
        self,
        names: &TableNames,
        template: &str,
        expected: &[Column],
        found: &mut SchemaMismatch,
    ) {
        let anew = self.wrong.iter().any(|(.., mend)| mend.is_none());
        let anew = anew.then(|| self.anew(names, template, expected));
        for (fatal, what, mend) in self.wrong {
            let mend = anew.clone().or(mend).unwrap_or_default();
            found.add(fatal, format!("{} {what}", self.name), mend);
        }
    }
}

/// Whether a table with this definition gives no id out twice.
pub(super) fn counts_up(made: &str) -> bool {
    bare(made).contains("autoincrement")
}

/// In lower case, without blanks, quotes and parentheses.
pub(super) fn bare(text: &str) -> String {
    let kept = |c: &char| !c.is_whitespace() && !matches!(c, '(' | ')' | '"');
    text.to_lowercase().chars().filter(kept).collect()
}

#[cfg(test)]
mod tests {
    use sqlx::AssertSqlSafe;
    use uuid::Uuid;

    use super::*;
    use crate::{App, Subscriber};

    /// The work of a tool that knows only Latin-1: a comment and a column's name and default in the
    /// definition of each table, and the names of an index and a trigger.
    const SPOILT: &str = "
        ALTER TABLE outbox ADD COLUMN \"caf~\" TEXT DEFAULT 'th~';
        CREATE INDEX \"zz~\" ON outbox (acquired_token, id) WHERE payload <> '~';
        CREATE TRIGGER \"tr~\" AFTER DELETE ON outbox BEGIN SELECT '~'; END;
        PRAGMA writable_schema = ON;
        UPDATE sqlite_master SET sql = replace(sql, 'CREATE TABLE', 'CREATE TABLE /* ~ */')
            WHERE name LIKE 'outbox%';
        UPDATE sqlite_master SET name = replace(name, '~', CAST(x'e9' AS TEXT)),
            sql = replace(sql, '~', CAST(x'e9' AS TEXT));
        PRAGMA writable_schema = OFF;";

    #[tokio::test]
    async fn a_schema_with_texts_that_are_no_utf_8_is_read() {
        let path = std::env::temp_dir().join(format!("outbox-{}.db", Uuid::new_v4()));
        let url = format!("sqlite:{}", path.display());
        let names = TableNames::default().with_dlq("outbox_dlq").unwrap();
        let pool = crate::sqlite::connect(&url).await.unwrap();
        crate::schema::migrate_tables(&pool, &names).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(SPOILT)).execute(&pool).await.unwrap();
        pool.close().await;

        let pool = crate::sqlite::connect(&url).await.unwrap();
        let mut connection = pool.acquire().await.unwrap();
        let table = Table::read(&mut connection, "outbox").await.unwrap();
        assert!(table.sql.contains("/* \u{fffd} */"), "{}", table.sql);
        assert_eq!(table.triggers, ["tr\u{fffd}"]);
        assert!(table.indexes.iter().any(|index| index.name == "zz\u{fffd}"));
        let column = table.columns.last().unwrap();
        assert_eq!(
            (&*column.name, column.default.as_deref()),
            ("caf\u{fffd}", Some("'th\u{fffd}'"))
        );
        drop(connection);
        assert!(validate(&pool, &names).await.unwrap().differences.is_empty());

        let (tell, mut handled) = tokio::sync::mpsc::unbounded_channel();
        let telling = Subscriber::new("it", "q", move |_| {
            let _ = tell.send(());
            async {}
        });
        let app = App::sqlite(pool.clone()).names(names).only([telling]);
        let running = app.start().await.unwrap();
        let mut tx = crate::sqlite::begin(&pool).await.unwrap();
        crate::publish(&mut tx, "q", &7).await.unwrap();
        tx.commit().await.unwrap();
        handled.recv().await.unwrap();
        running.stop().await.unwrap();
        app.doctor().unwrap().examine().await.unwrap();
        let operator = app.operator().unwrap();
        operator.sample(&crate::ops::SampleOptions::default()).await.unwrap();
        assert!(operator.why(1, &crate::ops::WhyOptions::default()).await.unwrap().is_known());
        pool.close().await;
        std::fs::remove_file(path).unwrap();
    }
}
