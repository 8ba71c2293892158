//! The dead-letter table in monthly partitions: making them, counting their letters, and dropping
//! old ones. Old letters then go with their whole partition, and need not be deleted one by one.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use super::rights::ID_SEQUENCE;
use super::schema::WHERE_THEY_ARE;
use super::time::PgTime;
use super::{PgDesk, once};
use crate::dlq::{CUT, DROP, Dropped, Partition, Partitioned};
use crate::error::StoreError;
use crate::store::template::quoted;
use crate::store::{Result, sql};

const ACTION: &str = CUT;
/// Letters are counted and moved by whole tables, which sequential scans do best.
const PLANS: &str = "SET LOCAL enable_seqscan = on";
/// The bounds of months are texts. In other settings a text may be read as another time than the one
/// that it was written for: IST is India's time, and Israel's.
const BOUNDS: &str = "SET LOCAL datestyle = 'ISO'; SET LOCAL timezone = 'UTC'";
/// Whoever reads or writes letters waits behind a caller that waits for this lock.
const LOCK: &str = "LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE";
const COUNT: &str = "SELECT count(*), count(*) FILTER (WHERE status = 'failed') FROM {table}";
/// Counts all months at once, by their bounds. A role that may read the table need not have the
/// right to read its partitions; and this reads only an index.
const COUNT_EACH: &str = "SELECT width_bucket(failed_at, $1), count(*), \
    count(*) FILTER (WHERE status = 'failed') FROM {table} GROUP BY 1";
const SHAPE: &str = "SELECT relkind = 'p', quote_ident(pg_get_userbyid(relowner)) \
    FROM pg_class WHERE oid = to_regclass($1) AND relkind IN ('r', 'p')";
const COLUMNS: &str = "SELECT quote_ident(attname) FROM pg_attribute \
    WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped \
        AND attgenerated = '' ORDER BY attnum";
const INDEXES: &str = "SELECT x.indexrelid::regclass::text FROM pg_index AS x \
    WHERE x.indrelid = to_regclass($1) AND NOT x.indisprimary ORDER BY 1";
const PRIMARY_KEY: &str = "SELECT quote_ident(conname) FROM pg_constraint \
    WHERE conrelid = to_regclass($1) AND contype = 'p'";
/// Whether a table is in the way, beside the letters, where a month would be made.
const IN_THE_WAY: &str = "SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_class AS letters \
    USING (relnamespace) WHERE c.oid = to_regclass($1) AND letters.oid = to_regclass($2))";
/// The first days of months, in UTC: the months with letters, this one and some to come. A letter
/// with a time that nobody can mean, and that the name of a month cannot express, belongs to no
/// month.
const MONTHS: &str = "SELECT to_char(day, 'YYYY_MM'), to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00', \
        to_char(day + interval '1 month', 'YYYY-MM-DD') || ' 00:00:00+00', \
        day AT TIME ZONE 'UTC', (day + interval '1 month') AT TIME ZONE 'UTC' \
    FROM (SELECT DISTINCT date_trunc('month', failed_at AT TIME ZONE 'UTC') AS day FROM {default} \
            WHERE failed_at >= '0001-01-01 00:00:00+00' \
                AND failed_at < '9999-12-01 00:00:00+00' \
        UNION SELECT date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') \
            + n * interval '1 month' FROM generate_series(0, $1) AS n) AS months \
    ORDER BY day";

/// A partition as the catalogue has it.
struct Month {
    /// Qualified and quoted.
    table: String,
    name: String,
    from: Option<SystemTime>,
    until: Option<SystemTime>,
}

impl Month {
    /// It has the letters that belong to no other.
    fn is_default(&self) -> bool {
        self.from.is_none() && self.until.is_none()
    }

    /// How much it has of this time.
    fn part_of(&self, from: SystemTime, until: SystemTime) -> Duration {
        let begins = self.from.map_or(from, |it| it.max(from));
        let ends = self.until.map_or(until, |it| it.min(until));
        ends.duration_since(begins).unwrap_or_default()
    }
}

impl PgDesk {
    fn letters_table(&self) -> String {
        self.names.qualified(&self.names.dlq_or_default())
    }

    /// The name of a table beside the letters, for the letters of a month or of none.
    fn beside(&self, what: &str) -> (String, String) {
        let name = format!("{}_{what}", self.names.dlq_or_default());
        (self.names.qualified(&name), quoted(&name))
    }

    pub(crate) async fn partitions(&self) -> Result<Vec<Partition>> {
        const ACTION: &str = "count the months of dead letters";
        let mut tx = self.reading(ACTION).await?;
        let months = self.months(&mut tx).await?;
        if months.is_empty() {
            return Ok(Vec::new());
        }
        let count = self.names.sql_with(COUNT_EACH, &[("{table}", &self.letters_table())]);
        let bounds = months.iter().flat_map(|month| [month.from, month.until]).flatten();
        let bounds: BTreeSet<_> = bounds.collect();
        let bounds: Vec<_> = bounds.into_iter().collect();
        let counted = sqlx::query_as(AssertSqlSafe(count))
            .persistent(false)
            .bind(bounds.iter().copied().map(PgTime).collect::<Vec<_>>())
            .fetch_all(&mut *tx)
            .await;
        let mut counted: Vec<(i32, i64, i64)> = counted.map_err(StoreError::of(ACTION))?;
        let partition = |month: Month| {
            let is_default = month.is_default();
            let Month { name, from, until, .. } = month;
            let bucket = from.map_or(0, |from| 1 + bounds.partition_point(|bound| *bound < from));
            // The default partition, the last one, has the letters that belong to no other. A month
            // that somebody made may have no end either (`MAXVALUE`).
            let own = |(of, ..): &mut (i32, i64, i64)| {
                is_default || usize::try_from(*of).is_ok_and(|of| of == bucket)
            };
            let (mut letters, mut open) = (0, 0);
            for (_, all, failed) in counted.extract_if(.., own) {
                letters += all.unsigned_abs();
                open += failed.unsigned_abs();
            }
            Partition { name, from, until, letters, open }
        };
        Ok(months.into_iter().map(partition).collect())
    }

    /// Letters of a partition, and the open ones among them.
    async fn letters_in(&self, connection: &mut PgConnection, table: &str) -> Result<(u64, u64)> {
        let count = self.names.sql_with(COUNT, &[("{table}", table)]);
        let counted =
            sqlx::query_as(AssertSqlSafe(count)).persistent(false).fetch_one(connection).await;
        let counted: (i64, i64) = counted.map_err(StoreError::of(DROP))?;
        Ok((counted.0.unsigned_abs(), counted.1.unsigned_abs()))
    }

    async fn months(&self, connection: &mut PgConnection) -> Result<Vec<Month>> {
        let failed = StoreError::of("look for the months of dead letters");
        connection.execute(BOUNDS).await.map_err(&failed)?;
        let look = once(&sql!(self.names, "letters_partitions"));
        let rows = look.bind(self.letters_table()).fetch_all(connection).await.map_err(&failed)?;
        let time = |time: Option<PgTime>| time.map(|PgTime(time)| time);
        let month = |row: &sqlx::postgres::PgRow| {
            Ok(Month {
                table: row.try_get(0)?,
                name: row.try_get(1)?,
                from: time(row.try_get(2)?),
                until: time(row.try_get(3)?),
            })
        };
        rows.iter().map(|row| month(row).map_err(&failed)).collect()
    }

    pub(crate) async fn partition(&self, ahead: u32) -> Result<Partitioned> {
        let failed = StoreError::of(ACTION);
        let table = self.letters_table();
        let mut tx = self.begin(ACTION).await?;
        tx.execute(PLANS).await.map_err(&failed)?;
        let lock = self.names.sql_with(LOCK, &[("{table}", &table)]);
        tx.execute(AssertSqlSafe(lock)).await.map_err(&failed)?;
        if self.names.schema().is_none() {
            let there = sqlx::query(WHERE_THEY_ARE).persistent(false).bind(&table);
            there.execute(&mut *tx).await.map_err(&failed)?;
        }
        let shape: Option<(bool, String)> = sqlx::query_as(SHAPE)
            .persistent(false)
            .bind(&table)
            .fetch_optional(&mut *tx)
            .await
            .map_err(&failed)?;
        let Some((whole, owner)) = shape.map(|(partitioned, owner)| (!partitioned, owner)) else {
            return Err(refused(format!("{table} is not a table that can be cut into months")));
        };
        if whole {
            self.convert(&mut tx, &owner).await?;
        }
        let (made, moved) = self.make_months(&mut tx, &owner, ahead).await?;
        tx.commit().await.map_err(&failed)?;
        Ok(Partitioned { converted: whole, made, moved })
    }

    async fn convert(&self, connection: &mut PgConnection, owner: &str) -> Result<()> {
        let failed = StoreError::of(ACTION);
        let table = self.letters_table();
        let left = sqlx::query_scalar::<_, String>(include_str!("sql/letters_left_behind.sql"))
            .persistent(false)
            .bind(&table)
            .bind(self.names.beside_letters());
        let left = left.fetch_all(&mut *connection).await.map_err(&failed)?;
        if !left.is_empty() {
            let left = left.join(", ");
            return Err(refused(format!(
                "{left} would stay with the old table: drop that (a tablespace and settings: put back \
                 the defaults), and make it anew afterwards (settings: on each month)"
            )));
        }
        let grants = texts(connection, include_str!("sql/letters_grants.sql"), &table).await?;
        for (number, index) in texts(connection, INDEXES, &table).await?.iter().enumerate() {
            let (_, name) = self.beside(&format!("default_{number}"));
            let values = [("{index}", &**index), ("{name}", &name)];
            let rename = self.names.sql_with("ALTER INDEX {index} RENAME TO {name}", &values);
            connection.execute(AssertSqlSafe(rename)).await.map_err(&failed)?;
        }
        let next = self.next_letter_id(&mut *connection).await?;
        for key in texts(connection, PRIMARY_KEY, &table).await? {
            let values = [("{table}", &*table), ("{key}", &key)];
            let drop = self.names.sql_with("ALTER TABLE {table} DROP CONSTRAINT {key}", &values);
            connection.execute(AssertSqlSafe(drop)).await.map_err(&failed)?;
        }
        let (default, plain) = self.beside("default");
        let values = [
            ("{default}", &*default),
            ("{plain}", &plain),
            ("{owner}", owner),
            ("{next}", &next.to_string()),
        ];
        let convert = self.names.sql_with(include_str!("sql/letters_to_months.sql"), &values);
        sqlx::raw_sql(AssertSqlSafe(convert)).execute(&mut *connection).await.map_err(&failed)?;
        self.take_back(&mut *connection, &table).await?;
        for grant in grants {
            connection.execute(AssertSqlSafe(grant)).await.map_err(&failed)?;
        }
        Ok(())
    }

    /// Revokes the default privileges that a new table has: they may have been revoked from the old
    /// one.
    async fn take_back(&self, connection: &mut PgConnection, table: &str) -> Result<()> {
        for revoke in texts(connection, include_str!("sql/letters_revokes.sql"), table).await? {
            connection.execute(AssertSqlSafe(revoke)).await.map_err(StoreError::of(ACTION))?;
        }
        Ok(())
    }

    /// Behind every id that was ever given out, also to letters that have been purged.
    async fn next_letter_id(&self, connection: &mut PgConnection) -> Result<i64> {
        let failed = StoreError::of(ACTION);
        let table = self.letters_table();
        let most = "SELECT coalesce(max(id), 0) + 1 FROM {table}";
        let most = self.names.sql_with(most, &[("{table}", &table)]);
        let most: i64 = sqlx::query_scalar(AssertSqlSafe(most))
            .persistent(false)
            .fetch_one(&mut *connection)
            .await
            .map_err(&failed)?;
        let ids = once(&self.names.sql_with(ID_SEQUENCE, &[("{table}", "$1")]));
        let ids = ids.bind(table).fetch_optional(&mut *connection).await.map_err(&failed)?;
        let Some(ids) = ids else { return Ok(most) };
        let sequence: String = ids.try_get(0).map_err(&failed)?;
        // This may be read by whoever may insert.
        let next = "SELECT coalesce(pg_sequence_last_value($1::regclass), 0) + 1";
        let next =
            sqlx::query_scalar(next).persistent(false).bind(sequence).fetch_one(connection).await;
        let next: i64 = next.map_err(&failed)?;
        Ok(most.max(next))
    }

    /// Makes the months that are missing. Returns them, and how many letters went into them.
    async fn make_months(
        &self,
        connection: &mut PgConnection,
        owner: &str,
        ahead: u32,
    ) -> Result<(Vec<String>, u64)> {
        let failed = StoreError::of(ACTION);
        let table = self.letters_table();
        let there = self.months(&mut *connection).await?;
        let Some(default) = there.iter().find(|month| month.is_default()) else {
            return Err(refused(format!("{table} has no default partition: make one")));
        };
        let months = self.names.sql_with(MONTHS, &[("{default}", &default.table)]);
        let wanted: Vec<(String, String, String, PgTime, PgTime)> =
            sqlx::query_as(AssertSqlSafe(months))
                .persistent(false)
                .bind(i32::try_from(ahead).unwrap_or(i32::MAX).min(120))
                .fetch_all(&mut *connection)
                .await
                .map_err(&failed)?;
        let columns = texts(connection, COLUMNS, &table).await?.join(", ");
        let (mut made, mut moved) = (Vec::new(), 0);
        for (suffix, from, until, begins, ends) in wanted {
            let (month, _) = self.beside(&suffix);
            let name = format!("{}_{suffix}", self.names.dlq_or_default());
            // Somebody may have made it by hand, under another name or as part of a quarter.
            let others = there.iter().filter(|one| !one.is_default());
            let there: Duration = others.map(|one| one.part_of(begins.0, ends.0)).sum();
            if there == ends.0.duration_since(begins.0).unwrap_or_default() {
                continue;
            }
            if !there.is_zero() {
                return Err(refused(format!(
                    "partitions of {table} have a part of the month from {from}: make one for the \
                     rest of it by hand"
                )));
            }
            let taken = sqlx::query_scalar(IN_THE_WAY).persistent(false).bind(&month).bind(&table);
            if taken.fetch_one(&mut *connection).await.map_err(&failed)? {
                return Err(refused(format!(
                    "{month}, which is not that month of {table}, is in the way: attach or rename it"
                )));
            }
            let values = [
                ("{month}", &*month),
                ("{default}", &default.table),
                ("{owner}", owner),
                ("{from}", &from),
                ("{until}", &until),
                ("{columns}", &columns),
            ];
            let text = self.names.sql_with(include_str!("sql/letters_month.sql"), &values);
            let month_made = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *connection).await;
            // Of these statements only the one that moves letters counts rows.
            moved += month_made.map_err(&failed)?.rows_affected();
            self.take_back(&mut *connection, &month).await?;
            made.push(name);
        }
        Ok((made, moved))
    }

    pub(crate) async fn drop_partitions(
        &self,
        before: SystemTime,
        with_open: bool,
        agreed: Option<&[&str]>,
    ) -> Result<Vec<Dropped>> {
        const ACTION: &str = DROP;
        let failed = StoreError::of(ACTION);
        let mut tx = self.begin(ACTION).await?;
        let is_old = |month: &Month| month.until.is_some_and(|until| until <= before);
        let there = self.months(&mut tx).await?;
        if there.is_empty() {
            let why = format!(
                "{} was never cut into months: cut it with `outbox dlq partition`, or delete old \
                 letters with `outbox dlq purge`",
                self.letters_table()
            );
            return Err(StoreError::new(ACTION, why, false));
        }
        if !there.iter().any(is_old) {
            return Ok(Vec::new());
        }
        tx.execute(PLANS).await.map_err(&failed)?;
        // First the table and then its months, as everybody does who reads letters. Whoever closes
        // a letter of them comes before the count, or too late.
        let lock = self.names.sql_with(LOCK, &[("{table}", &self.letters_table())]);
        tx.execute(AssertSqlSafe(lock)).await.map_err(&failed)?;
        let mut gone = Vec::new();
        for month in self.months(&mut tx).await?.into_iter().filter(is_old) {
            let (letters, open) = self.letters_in(&mut tx, &month.table).await?;
            let agreed = agreed.is_none_or(|names| names.contains(&&*month.name));
            let dropped = agreed && (with_open || open == 0);
            if dropped {
                let drop = self.names.sql_with("DROP TABLE {table}", &[("{table}", &month.table)]);
                tx.execute(AssertSqlSafe(drop)).await.map_err(&failed)?;
            }
            gone.push(Dropped { name: month.name, letters, open, dropped });
        }
        tx.commit().await.map_err(&failed)?;
        Ok(gone)
    }
}

async fn texts(
    connection: &mut PgConnection,
    sql: &'static str,
    table: &str,
) -> Result<Vec<String>> {
    let texts = sqlx::query_scalar(sql).persistent(false).bind(table);
    texts.fetch_all(connection).await.map_err(StoreError::of(ACTION))
}

fn refused(why: String) -> StoreError {
    StoreError::new(ACTION, why, false)
}
