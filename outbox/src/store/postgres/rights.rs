//! Whether the role of a session may do everything that handling messages takes. This is looked at
//! before an app starts: a missing right would otherwise show when a handler has run and its result
//! cannot be written.

use sqlx::Row as _;

use super::once;
use super::validate::Look;
use crate::schema::{DLQ, OUTBOX};

/// The columns that claims, settlements and leases write.
const SETTLED: [&str; 7] = [
    "attempts_count",
    "deliveries_count",
    "next_attempt_at",
    "first_attempt_at",
    "last_attempt_at",
    "acquired_at",
    "acquired_token",
];
/// The columns that a burial does not write: they have defaults, or are set later.
const NOT_BURIED: [&str; 4] = ["id", "status", "resolved_at", "replayed_id"];

/// Finds the sequence of the ids of a table, which its mark names.
pub(super) const ID_SEQUENCE: &str = include_str!("sql/id_sequence.sql");

impl Look<'_> {
    /// Reports the rights that are missing for handling: without one of them a handler would run again
    /// after each lease. Publishing takes more rights, and is not looked at. A role that may not claim
    /// handles nothing, so that is reported only where an app starts.
    pub(super) async fn rights(&mut self) -> Result<(), sqlx::Error> {
        let names = self.names;
        self.table = names.qualified(names.table());
        let read = OUTBOX.iter().map(|column| ("SELECT", column.name));
        let written = SETTLED.map(|name| ("UPDATE", name));
        let needed: Vec<_> = read.chain(written).chain([("DELETE", "id")]).collect();
        let lacked = self.lacking(&needed).await?;
        let leases = |one: &Lacked| {
            one.right == "UPDATE" && one.columns.iter().any(|name| name == "acquired_token")
        };
        if !self.starts && lacked.iter().any(leases) {
            return Ok(());
        }
        for one in lacked {
            self.lacks(one, "messages cannot be claimed and settled, or run again each time");
        }
        let Some(dlq) = names.dlq() else { return Ok(()) };
        self.table = names.qualified(dlq);
        let why = "what fails for good cannot be buried, and would run again after each lease";
        let buried = DLQ.iter().filter(|column| !NOT_BURIED.contains(&column.name));
        let needed: Vec<_> = buried.map(|column| ("INSERT", column.name)).collect();
        for one in self.lacking(&needed).await? {
            self.lacks(one, why);
        }
        let ids = names.sql_with(ID_SEQUENCE, &[("{table}", "$1")]);
        if let Some(ids) =
            once(&ids).bind(&self.table).fetch_optional(&mut *self.connection).await?
            && !ids.try_get::<bool, _>(2)?
        {
            let (sequence, role): (String, String) = (ids.try_get(0)?, ids.try_get(3)?);
            let what = format!("{role} lacks the right USAGE on {sequence}: {why}");
            self.found.add(true, what, format!("GRANT USAGE ON SEQUENCE {sequence} TO {role}"));
        }
        Ok(())
    }

    /// Reports ids that would run out: the sequence of a column that was an `integer` ends where those
    /// do.
    pub(super) async fn ids(&mut self) -> Result<(), sqlx::Error> {
        let names = self.names;
        let sql = names.sql_with(ID_SEQUENCE, &[("{table}", "$1")]);
        for table in [Some(names.table()), names.dlq()].into_iter().flatten() {
            let table = names.qualified(table);
            let ids = once(&sql).bind(&table).fetch_optional(&mut *self.connection).await?;
            let Some(ids) = ids else { continue };
            let (sequence, most): (String, i64) = (ids.try_get(0)?, ids.try_get(4)?);
            // That of an identity has the type of its column. A larger end was meant.
            if most <= i32::MAX.into() && !ids.try_get::<bool, _>(1)? {
                let what = format!("{sequence} gives no id of {table} above {most}");
                self.found.add(
                    false,
                    what,
                    format!("ALTER SEQUENCE {sequence} AS bigint NO MAXVALUE"),
                );
            }
        }
        Ok(())
    }

    async fn lacking(&mut self, needed: &[(&str, &str)]) -> Result<Vec<Lacked>, sqlx::Error> {
        let (rights, columns): (Vec<_>, Vec<_>) = needed.iter().copied().unzip();
        let lacked: Vec<(String, Vec<String>, String)> =
            sqlx::query_as(include_str!("sql/rights.sql"))
                .persistent(false)
                .bind(&self.table)
                .bind(rights)
                .bind(columns)
                .fetch_all(&mut *self.connection)
                .await?;
        let lacked = lacked.into_iter();
        Ok(lacked.map(|(right, columns, role)| Lacked { right, columns, role }).collect())
    }

    fn lacks(&mut self, Lacked { right, columns, role }: Lacked, why: &str) {
        let table = &self.table;
        let mend = if matches!(&*right, "INSERT" | "UPDATE") {
            format!("GRANT {right} ({}) ON {table} TO {role}", columns.join(", "))
        } else {
            // A claim reads more than single columns.
            format!("GRANT {right} ON {table} TO {role}")
        };
        self.found.add(true, format!("{role} lacks the right {right} on {table}: {why}"), mend);
    }
}

/// A right that a role lacks.
struct Lacked {
    right: String,
    columns: Vec<String>,
    role: String,
}
