//! Compares the indexes of a table with those that the statements need. An index counts if it does
//! what is expected, whatever its name. For one that is missing, the SQL that makes it is reported.

use super::taken::{Taken, taken};
use super::validate::{Look, bare};
use crate::schema::SchemaMismatch;
use crate::store::names::TableNames;

/// An index as it has to be.
pub(super) struct Index {
    name: String,
    columns: &'static [&'static str],
    unique: bool,
    predicate: Option<&'static str>,
    /// Statements fail without it.
    fatal: bool,
    mend: String,
}

/// What the indexes of the outbox table cover.
const DUE: Option<&str> = Some("next_attempt_at IS NOT NULL");
const TIMERS: Option<&str> = Some("timer_id IS NOT NULL");
/// What an index of open letters covers.
pub(super) const OPEN: Option<&str> = Some("status = 'failed'");

impl Index {
    /// The index that claims read.
    pub(super) fn due(names: &TableNames) -> Self {
        Self::of(names, "outbox_due_idx", &["queue", "next_attempt_at", "id"], DUE)
    }

    /// The index of timers.
    pub(super) fn timers(names: &TableNames) -> Self {
        Self::of(names, "outbox_timer_id_uq", &["queue", "timer_id"], TIMERS)
    }

    /// An index of the outbox table or of the dead-letter table. `name` is what it is called where
    /// the tables have their default names.
    pub(super) fn of(
        names: &TableNames,
        name: &str,
        columns: &'static [&'static str],
        predicate: Option<&'static str>,
    ) -> Self {
        let rows = predicate.map_or(String::new(), |predicate| format!(" WHERE {predicate}"));
        let unique = name.ends_with("_uq");
        let kind = if unique { "UNIQUE INDEX" } else { "INDEX" };
        let (table, own) = if name.starts_with("outbox_dlq_") {
            ("outbox_dlq", names.dlq_or_default())
        } else {
            ("outbox", names.table().to_owned())
        };
        let over = columns.join(", ");
        let mend = format!("CREATE {kind} \"{name}\" ON \"{table}\" ({over}){rows}");
        Self {
            name: name.replacen(table, &own, 1),
            columns,
            unique,
            predicate,
            // ON CONFLICT finds no other index.
            fatal: unique,
            mend: names.sql(&mend).to_string(),
        }
    }

    pub(super) fn primary_key(table: &str, columns: &'static [&'static str]) -> Self {
        Self {
            // No index has an empty name, so none is dropped for it.
            name: String::new(),
            columns,
            unique: true,
            predicate: None,
            fatal: false,
            mend: format!("ALTER TABLE {table} ADD PRIMARY KEY ({})", columns.join(", ")),
        }
    }

    /// Whether an index has these columns, for all rows or for some.
    fn is_like(&self, one: &ActualIndex) -> bool {
        one.columns == self.columns && one.unique == self.unique && one.in_order
    }

    /// Whether an index does what is expected, whatever its name.
    fn is_served_by(&self, one: &ActualIndex) -> bool {
        self.is_like(one) && one.predicate.as_deref().map(bare) == self.predicate.map(bare)
    }

    /// Tells that no index does what is expected.
    fn missing(
        self,
        all: &[ActualIndex],
        others: &[Taken],
        table: &str,
        found: &mut SchemaMismatch,
    ) {
        // An index over all rows serves ON CONFLICT too.
        let over_all = |one: &ActualIndex| self.is_like(one) && one.predicate.is_none();
        let fatal = self.fatal && !all.iter().any(over_all);
        let columns = self.columns.join(", ");
        let kind = if self.unique { "unique index" } else { "index" };
        let rows = self.predicate.map_or(String::new(), |rows| format!(" WHERE {rows}"));
        let mut what = format!("{table} has no valid {kind} on ({columns}){rows}");
        let mut mend = self.mend;
        if let Some(ActualIndex { qualified, .. }) = all.iter().find(|one| one.name == self.name) {
            what = format!("{what}; {qualified} is another");
            mend = format!("DROP INDEX {qualified}; {mend}");
        } else if let Some(taken) = others.iter().find(|one| one.name == self.name) {
            what = format!("{what}; {} is an index of {}", taken.index, taken.table);
            mend = format!("{}; {mend}", taken.mend);
        }
        found.add(fatal, what, mend);
    }
}

/// An index as it is.
struct ActualIndex {
    name: String,
    qualified: String,
    unique: bool,
    predicate: Option<String>,
    /// An expression has no name.
    columns: Vec<String>,
    /// Valid, and read in the order of its columns, by their own collations: a comparison uses no
    /// other.
    in_order: bool,
}

/// All indexes of a table.
const INDEXES: &str = "SELECT c.relname::text, x.indexrelid::regclass::text, x.indisunique, \
         pg_get_expr(x.indpred, x.indrelid), \
         keys.names, keys.alike \
             AND x.indisvalid AND a.amname = 'btree' AND x.indoption::text !~ '[1-9]' \
     FROM pg_index AS x \
     JOIN pg_class AS c ON c.oid = x.indexrelid \
     JOIN pg_am AS a ON a.oid = c.relam \
     CROSS JOIN LATERAL ( \
         SELECT array_agg(coalesce(k.attname::text, '') ORDER BY n) AS names, \
             bool_and(x.indcollation[n] = coalesce(k.attcollation, 0)) AS alike \
         FROM generate_series(0, x.indnkeyatts - 1) AS n \
         LEFT JOIN pg_attribute AS k ON k.attrelid = x.indrelid AND k.attnum = x.indkey[n] \
     ) AS keys \
     WHERE x.indrelid = to_regclass($1)";

impl Look<'_> {
    async fn actual(&mut self) -> Result<Vec<ActualIndex>, sqlx::Error> {
        let rows = self.rows::<(_, _, _, _, _, _)>(INDEXES).await?;
        let actual = rows.into_iter().map(|row| {
            let (name, qualified, unique, predicate, columns, in_order) = row;
            ActualIndex { name, qualified, unique, predicate, columns, in_order }
        });
        Ok(actual.collect())
    }

    /// Whether the table has an index that does as much as each of these.
    pub(super) async fn has<const N: usize>(
        &mut self,
        expected: [Index; N],
    ) -> Result<[bool; N], sqlx::Error> {
        let actual = self.actual().await?;
        Ok(expected.map(|one| actual.iter().any(|it| one.is_served_by(it))))
    }

    /// Looks among the indexes of the table for each of these.
    pub(super) async fn indexes<const N: usize>(
        &mut self,
        expected: [Index; N],
    ) -> Result<(), sqlx::Error> {
        let actual = self.actual().await?;
        for one in expected {
            if !actual.iter().any(|it| one.is_served_by(it)) {
                let others = taken(self.connection, self.names).await?;
                one.missing(&actual, &others, &self.table, &mut self.found);
            }
        }
        Ok(())
    }
}
