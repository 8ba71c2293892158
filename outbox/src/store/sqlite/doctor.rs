//! What a doctor asks the file: whether it is damaged, how it is set up, whether it can be written,
//! and what messages it holds. `ops::doctor` judges the answers.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions as _, Sqlite};

use super::batch::{explained, searches};
use super::connect::{SHARED_IN_MEMORY, is_busy, is_missing, no_folder, why_private};
use super::desk::SqliteDesk;
use super::query;
use super::settle::Statement;
use crate::error::StoreError;
use crate::ops::doctor::{Page, StoredMessage};
use crate::store::answers::{Columns as _, kept};
use crate::store::{Result, sql};

fn failed(error: sqlx::Error) -> StoreError {
    StoreError::of("examine")(error)
}

impl SqliteDesk {
    /// Opens the file once, or names it in the error.
    pub(crate) async fn reach(&self) -> crate::Result<()> {
        let (file, options) = (self.file(), self.pool().connect_options());
        let name = options.get_filename().to_string_lossy();
        let in_memory = name == ":memory:" || name.starts_with(SHARED_IN_MEMORY);
        if !in_memory && is_missing(&file) {
            let why = no_folder(&file).unwrap_or_else(|| {
                format!(
                    "the file {} does not exist; `outbox migrate` makes it, unless the URL says \
                     `mode=rw` or `mode=ro`",
                    file.display()
                )
            });
            return Err(StoreError::new("open SQLite", why, false).into());
        }
        super::open(self.pool()).await
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.pool().connect_options().get_filename().to_owned()
    }

    /// The first ten damages.
    pub(crate) async fn damages(&self) -> Result<Vec<String>> {
        let check = sqlx::query::<Sqlite>("PRAGMA quick_check(10)");
        // The answer contains names of tables and columns that are not ours.
        let checked = check.try_map(|row: SqliteRow| row.text(0)).fetch_all(self.pool()).await;
        let mut told = match checked {
            Ok(told) => told,
            // The file is too damaged for the check itself.
            Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| code == "11") => {
                vec![error.message().to_owned()]
            }
            Err(error) => return Err(failed(error)),
        };
        told.retain(|line| line != "ok");
        Ok(told)
    }

    pub(crate) async fn journal_mode(&self) -> Result<String> {
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(self.pool()).await.map_err(failed)
    }

    pub(crate) async fn busy_timeout(&self) -> Result<Duration> {
        let asked = sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(self.pool()).await;
        asked.map(|ms: i64| Duration::from_millis(ms.unsigned_abs())).map_err(failed)
    }

    /// Takes the write lock, writes, and gives the lock back with nothing written.
    pub(crate) async fn try_to_write(&self) -> Result<()> {
        let mut tx = self.writing("examine").await?;
        // The lock alone is also given to those who may only read.
        let written = sqlx::query("CREATE TABLE outbox_doctor (id INTEGER)").execute(&mut *tx);
        written.await.map_err(failed)?;
        tx.rollback().await.map_err(failed)
    }

    /// Whether SQLite has answered so, and not the pool.
    pub(crate) fn is_of_the_file(error: &StoreError) -> bool {
        let answer = |error: &sqlx::Error| error.as_database_error().is_some();
        error.source.downcast_ref().is_some_and(answer)
    }

    /// Whether somebody else has the file locked.
    pub(crate) fn is_locked(error: &StoreError) -> bool {
        error.source.downcast_ref().is_some_and(is_busy)
    }

    pub(super) async fn ask<T>(
        &self,
        statement: Statement,
        row: impl Fn(&SqliteRow) -> sqlx::Result<T>,
    ) -> Result<Vec<T>> {
        self.read("examine", statement, row).await
    }

    pub(super) async fn has_letters(&self) -> Result<bool> {
        let there = "SELECT count(*) > 0 FROM sqlite_master \
            WHERE type = 'table' AND lower(name) = lower(?1)";
        let there = sqlx::query_scalar(there).bind(self.names.dlq_or_default());
        there.fetch_one(self.pool()).await.map_err(failed)
    }

    /// Hands each row of the page over as it comes. Returns whether its first row was looked up: a
    /// table that ANALYZE once saw nearly empty is read from the start for each page.
    pub(crate) async fn page(
        &self,
        page: Page<'_>,
        mut each: impl FnMut(StoredMessage),
    ) -> Result<bool> {
        let text = if page.letters {
            sql!(self.names, "doctor/letters")
        } else {
            sql!(self.names, "doctor/rows")
        };
        let queues = serde_json::Value::from(page.queues).to_string();
        let statement = query(&text).bind(page.after).bind(page.last).bind(queues).bind(page.rows);
        // The driver reads ahead of whoever takes the rows: by one, and not by fifty. A private
        // database is only in its pool.
        let (mut own, mut pooled);
        let connection: &mut SqliteConnection = if why_private(self.pool()).is_some() {
            pooled = self.pool().acquire().await.map_err(failed)?;
            &mut pooled
        } else {
            let options = (*self.pool().connect_options()).clone().row_buffer_size(1);
            own = options.connect().await.map_err(failed)?;
            &mut own
        };
        let mut rows = statement.fetch(&mut *connection);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            each(kept(&row).map_err(failed)?);
        }
        drop(rows);
        searches(connection, &explained(&text)).await.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::SqlitePoolOptions;

    use super::*;
    use crate::store::names::TableNames;

    fn memory() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    }

    /// It decodes more slowly than the driver reads.
    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn large_rows_are_in_memory_one_at_a_time() {
        const ROW: usize = 4 << 20;
        let path = std::env::temp_dir().join(format!("outbox-{}.db", uuid::Uuid::new_v4()));
        let pool = crate::sqlite::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        let names = TableNames::default();
        crate::schema::migrate_tables(&pool, &names).await.unwrap();
        let insert = "INSERT INTO outbox (queue, payload) VALUES ('q', zeroblob(4 << 20))";
        for _ in 0..40 {
            sqlx::query(insert).execute(&pool).await.unwrap();
        }
        let desk = SqliteDesk::new(pool.clone(), &names);
        let queues = ["q".to_owned()];
        let page = Page { letters: false, after: 0, last: 40, queues: &queues, rows: 500 };
        let (before, mut most, mut rows) = (memory(), 0, 0);
        let each = |row: StoredMessage| {
            std::thread::sleep(Duration::from_millis(10));
            most = most.max(memory());
            rows += usize::from(row.payload.len() == ROW);
        };
        desk.page(page, each).await.unwrap();
        pool.close().await;
        std::fs::remove_file(path).unwrap();
        assert_eq!(rows, 40);
        assert!(most.saturating_sub(before) < 20 * ROW, "{before} before, {most} meanwhile");
    }

    #[tokio::test]
    async fn a_damage_is_told_with_a_name_that_is_no_utf_8() {
        let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await;
        let pool = pool.unwrap();
        let spoil = "CREATE TABLE menu (\"caf~\" TEXT); INSERT INTO menu VALUES (NULL);
            PRAGMA writable_schema = ON;
            UPDATE sqlite_master SET sql =
                replace(replace(sql, '~', CAST(x'e9' AS TEXT)), 'TEXT', 'TEXT NOT NULL');
            PRAGMA writable_schema = RESET;";
        sqlx::raw_sql(spoil).execute(&pool).await.unwrap();
        let desk = SqliteDesk::new(pool, &TableNames::default());
        assert_eq!(desk.damages().await.unwrap(), ["NULL value in menu.caf\u{fffd}"]);
    }
}
