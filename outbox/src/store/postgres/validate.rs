//! What is wrong with the tables, and the SQL that mends it. An app looks before it starts, and
//! does not start on a difference that would make its statements fail.

use std::collections::HashMap;

use sqlx::FromRow;
use sqlx::postgres::{PgConnection, PgRow};

use super::indexes::{Index, OPEN};
use crate::error::has_code;
use crate::schema::{Column, DLQ, Database, IDENTITY, NOW, OUTBOX, PAUSED, SchemaMismatch};
use crate::store::making::making;
use crate::store::names::TableNames;
use crate::store::template::quoted;

/// A look at one table after the other.
pub(super) struct Look<'a> {
    pub(super) connection: &'a mut PgConnection,
    pub(super) names: &'a TableNames,
    /// Whether an app is about to start, and not somebody who only looks.
    pub(super) starts: bool,
    /// The table that is looked at.
    pub(super) table: String,
    pub(super) found: SchemaMismatch,
}

impl<'a> Look<'a> {
    pub(super) fn new(
        connection: &'a mut PgConnection,
        names: &'a TableNames,
        starts: bool,
    ) -> Self {
        Self { connection, names, starts, table: String::new(), found: SchemaMismatch::default() }
    }

    /// What a statement tells of the table, which is its parameter.
    async fn row<T>(&mut self, sql: &'static str) -> Result<T, sqlx::Error>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        self.rows(sql).await?.pop().ok_or(sqlx::Error::RowNotFound)
    }

    /// As [`row`](Self::row), for any number of rows.
    pub(super) async fn rows<T>(&mut self, sql: &'static str) -> Result<Vec<T>, sqlx::Error>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        sqlx::query_as(sql)
            .persistent(false)
            .bind(&self.table)
            .fetch_all(&mut *self.connection)
            .await
    }

    /// Compares the tables with what the statements need. A dead-letter table that is locked is an
    /// error only where nobody starts: an app works beside a locked one.
    pub(super) async fn tables(&mut self, autovacuum: bool) -> Result<(), sqlx::Error> {
        let names = self.names;
        self.server().await?;
        self.table = names.qualified(names.table());
        if self.columns(&OUTBOX).await? {
            self.indexes([
                Index::primary_key(&self.table, &["id"]),
                Index::due(names),
                Index::timers(names),
            ])
            .await?;
            self.lease_check().await?;
            if self.is_cut().await? {
                let what = format!(
                    "{} is cut into partitions or inherited from: a claim finds its rows by their \
                     places, and rows in different parts can have the same place",
                    self.table
                );
                let mend =
                    "-- move its rows into a table of one piece, which `outbox migrate` makes";
                self.found.add(true, what, mend);
            }
            if autovacuum {
                self.vacuum_settings().await?;
            }
            self.logged().await?;
            self.row_security().await?;
        }
        self.table = names.qualified(&names.paused());
        let readable =
            "SELECT has_table_privilege(to_regclass($1), 'SELECT'), quote_ident(current_user)";
        let (readable, role): (Option<bool>, String) = self.row(readable).await?;
        match readable {
            None => self.found.lacks_pauses(Database::Postgres, names),
            Some(false) => self.found.hides_pauses(&self.table, &role),
            Some(true) => {
                if self.columns(&PAUSED).await? {
                    self.indexes([Index::primary_key(&self.table, &["queue"])]).await?;
                    self.row_security().await?;
                }
            }
        }
        let Some(dlq) = names.dlq() else { return Ok(()) };
        self.table = names.qualified(dlq);
        if self.columns(&DLQ).await? {
            self.logged().await?;
            match self.letters().await {
                Err(locked) if self.starts && has_code(&locked, &["55P03", "57014"]) => {
                    let what = format!(
                        "{} is locked by another session: what fails for good waits until it lets \
                         go, and the CHECKs, indexes and policies of the table were not looked at",
                        self.table
                    );
                    self.found.add(false, what, "-- nothing, if it ends; `outbox doctor` names it");
                }
                looked => looked?,
            }
        }
        Ok(())
    }

    /// What the server tells about the dead-letter table only while nobody has locked it. None of
    /// this keeps an app from its work.
    async fn letters(&mut self) -> Result<(), sqlx::Error> {
        let names = self.names;
        self.row_security().await?;
        let key: &'static [&'static str] =
            if self.is_cut().await? { &["id", "failed_at"] } else { &["id"] };
        self.status_check().await?;
        self.indexes([
            Index::primary_key(&self.table, key),
            Index::of(names, "outbox_dlq_queue_failed_idx", &["queue", "failed_at"], None),
            Index::of(names, "outbox_dlq_status_idx", &["status", "failed_at", "id"], None),
            Index::of(names, "outbox_dlq_open_idx", &["queue", "failed_at", "id"], OPEN),
            Index::of(names, "outbox_dlq_group_idx", &["fingerprint", "failed_at", "id"], OPEN),
        ])
        .await
    }

    /// In another encoding not every text can be stored. A dead letter whose error contains such a
    /// character would fail each time, and its row would run again after every lease. Where nothing
    /// can be written, an app may wait for the day on which it can.
    async fn server(&mut self) -> Result<(), sqlx::Error> {
        let asked = "SELECT current_setting('server_encoding'), pg_is_in_recovery(), \
            current_setting('default_transaction_read_only')::bool";
        let (encoding, standby, read_only): (String, bool, bool) =
            sqlx::query_as(asked).persistent(false).fetch_one(&mut *self.connection).await?;
        if encoding != "UTF8" {
            let what = format!("the database has the encoding {encoding}, not UTF8");
            let mend =
                "-- pg_dump; CREATE DATABASE .. ENCODING 'UTF8' TEMPLATE template0; pg_restore";
            self.found.add(true, what, mend);
        }
        if standby {
            let what = "the server is a standby: nothing is claimed, and nothing can be published";
            self.found.add(false, what, "-- name the server that takes writes in the URL");
        } else if read_only {
            let what = "`default_transaction_read_only` is on: nothing is claimed";
            let mend = "-- take it out of the options of the URL, or ALTER ROLE .. RESET it";
            self.found.add(false, what, mend);
        }
        Ok(())
    }

    /// A crash of the server empties a table that is not logged.
    async fn logged(&mut self) -> Result<(), sqlx::Error> {
        let unlogged = "SELECT relpersistence = 'u' FROM pg_class WHERE oid = to_regclass($1)";
        let (unlogged,) = self.row(unlogged).await?;
        if unlogged {
            let table = &self.table;
            let what = format!("{table} is UNLOGGED: a crash of the server empties it");
            self.found.add(false, what, format!("ALTER TABLE {table} SET LOGGED;"));
        }
        Ok(())
    }

    /// Whether policies decide for this role. What they hide or refuse shows nowhere else.
    async fn row_security(&mut self) -> Result<(), sqlx::Error> {
        let decides = include_str!("sql/row_security.sql");
        let (decides, role): (bool, String) = self.row(decides).await?;
        if decides {
            let table = &self.table;
            let what = format!(
                "row-level security is active on {table} for {role}: rows that its policies hide are \
                 never claimed, letters that they refuse run again"
            );
            let mend =
                "-- CREATE POLICY .. USING (true) WITH CHECK (true), or ALTER ROLE .. BYPASSRLS";
            self.found.add(false, what, mend);
        }
        Ok(())
    }

    /// Whether a table is partitioned, as the dead-letter table may be by months: the time of the
    /// failure is then part of its key.
    async fn is_cut(&mut self) -> Result<bool, sqlx::Error> {
        let cut = "SELECT relkind = 'p' OR EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid) \
            FROM pg_class AS c WHERE oid = to_regclass($1)";
        Ok(self.row::<(bool,)>(cut).await?.0)
    }

    /// False when the table does not exist.
    async fn columns(&mut self, expected: &[Column]) -> Result<bool, sqlx::Error> {
        let there = "SELECT attname::text, translate(format_type(atttypid, atttypmod), '\"', ''), \
                attnotnull, atthasdef OR attidentity <> '' \
            FROM pg_attribute \
            WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";
        let rows: Vec<(String, String, bool, bool)> = self.rows(there).await?;
        if rows.is_empty() {
            let mend = making(Database::Postgres, self.names, &self.table);
            let elsewhere: Vec<(String,)> = self.rows(include_str!("sql/elsewhere.sql")).await?;
            let elsewhere = elsewhere.into_iter().map(|(one,)| one).collect::<String>();
            let what = format!("the table {} does not exist{elsewhere}", self.table);
            self.found.add(true, what, mend);
            return Ok(false);
        }
        let actual = rows.into_iter().map(|(name, kind, not_null, has_default)| {
            (name, Actual { kind, not_null, has_default })
        });
        let mut actual: HashMap<_, _> = actual.collect();
        for column in expected {
            match actual.remove(column.name) {
                None => self.missing(column),
                Some(actual) => self.compare(column, &actual),
            }
        }
        let Self { table, found, .. } = self;
        for (name, Actual { not_null, has_default, .. }) in actual {
            if not_null && !has_default {
                let mend =
                    format!("ALTER TABLE {table} ALTER COLUMN {} DROP NOT NULL", quoted(&name));
                let what = format!(
                    "{table} has a further column {name} without a default, which makes inserts fail"
                );
                found.add(true, what, mend);
            }
        }
        Ok(true)
    }

    fn missing(&mut self, column: &Column) {
        let Self { table, found, .. } = self;
        let Column { name, postgres: types, not_null, default, .. } = column;
        let null = if *not_null { " NOT NULL" } else { "" };
        let default = match *default {
            "" => String::new(),
            IDENTITY => " GENERATED BY DEFAULT AS IDENTITY".into(),
            value => format!(" DEFAULT {value}"),
        };
        let mend = format!("ALTER TABLE {table} ADD COLUMN {name} {}{null}{default}", types[0]);
        found.add(true, format!("{table} has no column {name}"), mend);
    }

    fn compare(&mut self, column: &Column, actual: &Actual) {
        let Self { table, found, .. } = self;
        let Column { name, postgres: types, not_null, default, .. } = column;
        let alter = |what: &str| format!("ALTER TABLE {table} ALTER COLUMN {name} {what}");
        let (kind, value) = (types[0], !matches!(*default, "" | IDENTITY));
        if !types.contains(&actual.kind.as_str()) {
            let using = match kind {
                "bytea" => format!("convert_to({name}::text, 'UTF8')"),
                _ => format!("{name}::{kind}"),
            };
            let mut mend = alter(&format!("TYPE {kind} USING {using}"));
            if value && actual.has_default {
                // A default of the old type would be in the way.
                mend = alter(&format!(
                    "DROP DEFAULT, ALTER COLUMN {name} TYPE {kind} USING {using}, \
                     ALTER COLUMN {name} SET DEFAULT {default}"
                ));
            }
            found.add(true, format!("{table}.{name} is {} instead of {kind}", actual.kind), mend);
        }
        if actual.not_null && !not_null {
            found.add(true, format!("{table}.{name} is NOT NULL"), alter("DROP NOT NULL"));
        }
        if *not_null && !actual.not_null {
            let mut mend = alter("SET NOT NULL");
            if value {
                mend =
                    format!("UPDATE {table} SET {name} = {default} WHERE {name} IS NULL; {mend}");
            }
            found.add(column.claimed, format!("{table}.{name} is nullable"), mend);
        }
        if !default.is_empty() && !actual.has_default {
            let mend = if value {
                alter(&format!("SET DEFAULT {default}"))
            } else {
                // The sequence starts behind the ids of the rows that are there.
                format!(
                    "{}; SELECT setval(pg_get_serial_sequence('{}', '{name}'), \
                     coalesce(max({name}), 0) + 1, false) FROM {table}",
                    alter("ADD GENERATED BY DEFAULT AS IDENTITY"),
                    table.replace('\'', "''")
                )
            };
            found.add(*default != NOW, format!("{table}.{name} has no default"), mend);
        }
    }

    async fn lease_check(&mut self) -> Result<(), sqlx::Error> {
        let lease = "CHECKacquired_tokenISNULL=acquired_atISNULL";
        if !self.checks().await?.iter().any(|text| text == lease) {
            // Rows with half a lease would be in its way; no claim would ever take them.
            let mend = self.names.sql("UPDATE \"outbox\" SET acquired_token = NULL, acquired_at = NULL WHERE (acquired_token IS NULL) <> (acquired_at IS NULL); ALTER TABLE \"outbox\" DROP CONSTRAINT IF EXISTS \"outbox_lease_ck\", ADD CONSTRAINT \"outbox_lease_ck\" CHECK ((acquired_token IS NULL) = (acquired_at IS NULL))");
            let what = format!("{} lacks the CHECK that a lease is complete", self.table);
            self.found.add(false, what, &*mend);
        }
        Ok(())
    }

    /// The CHECK of what a status may be: a letter with another status would leave the indexes of open
    /// letters and never be found.
    async fn status_check(&mut self) -> Result<(), sqlx::Error> {
        let words = ["'failed'", "'resolved'", "'ignored'"];
        let is_ours = |text: &String| {
            let of_words =
                text.matches('\'').count() == 6 && words.iter().all(|it| text.contains(it));
            text.starts_with("CHECKstatus=") && of_words
        };
        if !self.checks().await?.iter().any(is_ours) {
            let mend = self.names.sql("UPDATE \"outbox_dlq\" SET status = 'failed' WHERE status NOT IN ('failed', 'resolved', 'ignored'); ALTER TABLE \"outbox_dlq\" DROP CONSTRAINT IF EXISTS \"outbox_dlq_status_ck\", ADD CONSTRAINT \"outbox_dlq_status_ck\" CHECK (status IN ('failed', 'resolved', 'ignored'))");
            let what = format!("{} lacks the CHECK of what a status may be", self.table);
            self.found.add(false, what, &*mend);
        }
        Ok(())
    }

    /// The CHECKs of a table, as [`bare`] has them. The text of one that was never tried on all rows
    /// says so.
    async fn checks(&mut self) -> Result<Vec<String>, sqlx::Error> {
        let checks = "SELECT pg_get_constraintdef(oid) FROM pg_constraint \
            WHERE conrelid = to_regclass($1) AND contype = 'c'";
        let definitions: Vec<(String,)> = self.rows(checks).await?;
        Ok(definitions.iter().map(|(text,)| bare(text)).collect())
    }

    async fn vacuum_settings(&mut self) -> Result<(), sqlx::Error> {
        let options = "SELECT reloptions FROM pg_class WHERE oid = to_regclass($1)";
        let (options,): (Option<Vec<String>>,) = self.row(options).await?;
        let table = &self.table;
        let options = options.unwrap_or_default();
        let get =
            |name: &str| options.iter().find_map(|set| set.strip_prefix(name)?.strip_prefix('='));
        for (name, value, exact) in [
            ("autovacuum_vacuum_scale_factor", "0", true),
            ("autovacuum_vacuum_threshold", "1000", false),
            ("autovacuum_vacuum_insert_scale_factor", "0", true),
            ("autovacuum_vacuum_insert_threshold", "1000", false),
            ("autovacuum_vacuum_cost_delay", "0", false),
        ] {
            let right = get(name).is_some_and(|set| !exact || set.parse() == Ok(0.0));
            if !right {
                let mend = format!("ALTER TABLE {table} SET ({name} = {value})");
                self.found.add(false, format!("{table} does not set {name}"), mend);
            }
        }
        if get("autovacuum_enabled").is_some_and(is_off) {
            let mend = format!("ALTER TABLE {table} RESET (autovacuum_enabled)");
            self.found.add(false, format!("autovacuum is off for {table}"), mend);
        }
        Ok(())
    }
}

/// A column as it is in the database.
struct Actual {
    kind: String,
    not_null: bool,
    has_default: bool,
}

/// As the server reads the setting, which is stored as it was written.
fn is_off(set: &str) -> bool {
    let set = set.to_ascii_lowercase();
    ["false", "no"].iter().any(|word| word.starts_with(&set)) || matches!(&*set, "of" | "off" | "0")
}

/// Without blanks, parentheses, quotes of names and casts to text, which the server places as it
/// likes.
pub(super) fn bare(text: &str) -> String {
    let kept = |c: &char| !c.is_whitespace() && !matches!(c, '(' | ')' | '"');
    text.chars().filter(kept).collect::<String>().replace("::text", "")
}
