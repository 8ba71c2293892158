//! Opening a file the way the outbox needs it, and beginning a transaction that may write. Such a
//! transaction takes the write lock when it begins, because one that has read cannot wait for other
//! writers.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Database, Executor as _, SqlSafeStr as _,
    Sqlite, SqliteConnection, Transaction,
};
use sqlx_core::transaction::TransactionManager as _;
use tokio::time::{Instant, sleep};

use super::query;
use crate::error::StoreError;
use crate::store::names::TableNames;

type Manager = <Sqlite as Database>::TransactionManager;

/// How long to wait for others who write.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks.
const AGAIN: Duration = Duration::from_millis(50);
/// What may be left of a write-ahead log that was written back. SQLite begins the log anew, but
/// leaves a file that has grown behind a reader as large as it was. Ordinary logs have 4 MiB.
const LOG_BYTES: &str = "16777216";

/// Opens a SQLite file, and makes it if it is missing. It has a write-ahead log and a busy timeout
/// of 5 s. A log that has grown beyond 16 MiB is cut to 16 MiB once it is no longer needed. With
/// `?mode=rw` in the URL a missing file is an error.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("outbox-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let url = format!("sqlite:{}", folder.join("shop.db").display());
/// let pool = outbox::sqlite::connect(&url).await?;     // "sqlite:shop.db"
/// outbox::migrate(&pool).await?;
///
/// let mut tx = outbox::sqlite::begin(&pool).await?;
/// outbox::publish(&mut tx, "orders", &7).await.unwrap();
/// tx.commit().await.unwrap();
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok(()) }
/// ```
///
/// # Errors
/// When the URL does not begin with `sqlite:`, names no file, names one as `file:shop.db` or cannot
/// be read, or when the file cannot be opened. `sqlite:` alone and `mode=memory` name no file: each
/// connection would have a database of its own, which goes with the connection.
///
/// # Cancel safety
/// A dropped call may have made the file.
pub async fn connect(url: &str) -> crate::Result<SqlitePool> {
    if !url.starts_with("sqlite:") {
        // It may be the URL of a server, with a password.
        let why = "the URL does not start with `sqlite:`";
        return Err(StoreError::new("open SQLite", why, false).into());
    }
    if file_in(url).is_none() {
        let why = "the URL names no file; write `sqlite:file.db`";
        return Err(StoreError::new("open SQLite", why, false).into());
    }
    let options = options(url).map_err(StoreError::of("open SQLite"))?;
    if names_a_uri(&options) {
        let why = "the URL names the file by `file:`; write the path itself: `sqlite:shop.db`";
        return Err(StoreError::new("open SQLite", why, false).into());
    }
    let pool = SqlitePool::connect_lazy_with(with_a_log(options));
    open(&pool).await?;
    Ok(pool)
}

/// The file that a URL names. `:memory:` counts as one: a whole pool works on it.
pub(crate) fn file_in(url: &str) -> Option<&str> {
    let rest = url.trim_start_matches("sqlite:").trim_start_matches("//");
    let (name, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let in_memory = parameters.split('&').any(|one| one == "mode=memory");
    (!name.is_empty() && !in_memory).then_some(name)
}

/// The options of a URL. Opening a file with them changes nothing in a file that is there.
pub(crate) fn options(url: &str) -> Result<SqliteConnectOptions, sqlx::Error> {
    let options = SqliteConnectOptions::from_str(url)?.busy_timeout(PATIENCE);
    let (_, parameters) = url.split_once('?').unwrap_or((url, ""));
    // The driver makes a file only for `mode=rwc`.
    let says = parameters.split('&').any(|one| one.starts_with("mode="));
    Ok(if says { options } else { options.create_if_missing(true) })
}

/// For programs that work with the file: it keeps the mode of its journal when they have gone.
pub(crate) fn with_a_log(options: SqliteConnectOptions) -> SqliteConnectOptions {
    cutting_the_log(options.journal_mode(SqliteJournalMode::Wal))
}

/// Whether SQLite would open the name as a URI. Nothing that looks for the file would find it then.
pub(crate) fn names_a_uri(options: &SqliteConnectOptions) -> bool {
    let name = options.get_filename().to_string_lossy();
    name.starts_with("file:") && !name.starts_with(SHARED_IN_MEMORY)
}

/// How sqlx names the database in memory that a URL asks for.
pub(super) const SHARED_IN_MEMORY: &str = "file:sqlx-in-memory-";

/// Why no app can work on the pool: the tables would be another connection's.
pub(crate) fn why_private(pool: &SqlitePool) -> Option<String> {
    let options = pool.connect_options();
    let name = options.get_filename();
    (name == Path::new("") || name == Path::new(":memory:")).then(|| {
        "each connection of the pool has its own database: open a file, or `sqlite::memory:`".into()
    })
}

/// Why no app can work on the file: it can be read, but not written. Whatever else is wrong is told
/// by the look at the tables.
pub(crate) async fn why_read_only(pool: &SqlitePool, names: &TableNames) -> Option<String> {
    const READONLY: u32 = 8;
    // `BEGIN IMMEDIATE` does not mind a file that is read-only.
    let write = names.sql("UPDATE \"outbox\" SET id = id WHERE false");
    // On a connection that waits for no other writer.
    let options = (*pool.connect_options()).clone().busy_timeout(Duration::ZERO);
    let tries = async {
        let mut connection = options.connect().await?;
        let tried = query(&write).execute(&mut connection).await;
        connection.close().await?;
        tried
    };
    (code(&tries.await.err()?)? & 0xff == READONLY).then(|| {
        let file = pool.connect_options().get_filename().display().to_string();
        format!("{file} is read-only for this process: let it write the file and its folder")
    })
}

/// For connections that write: whoever begins the log anew cuts it.
pub(super) fn cutting_the_log(options: SqliteConnectOptions) -> SqliteConnectOptions {
    options.pragma("journal_size_limit", LOG_BYTES)
}

/// Opens the file, or names it in the error. SQLite does not wait by itself to change to a
/// write-ahead log, as it does to write.
pub(crate) async fn open(pool: &SqlitePool) -> crate::Result<()> {
    let begun = Instant::now();
    let opened = loop {
        match pool.acquire().await {
            Err(error) if is_busy(&error) && begun.elapsed() < PATIENCE => sleep(AGAIN).await,
            opened => break opened.map(drop),
        }
    };
    Ok(opened.map_err(|error| {
        let options = pool.connect_options();
        let file = options.get_filename();
        let missing = match file {
            _ if file.is_dir() => ", which is a folder",
            _ if is_missing(file) => ", which does not exist",
            _ => "",
        };
        let named =
            no_folder(file).unwrap_or_else(|| format!("{}{missing}: {error}", file.display()));
        StoreError { source: named.into(), ..StoreError::of("open SQLite")(error) }
    })?)
}

/// Why a file cannot be made, if its folder is missing: SQLite makes no folders.
pub(super) fn no_folder(file: &Path) -> Option<String> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    let why =
        || format!("the folder {} of {} does not exist: make it", folder.display(), file.display());
    is_missing(folder).then(why)
}

/// A file that nobody may look at does not count as missing.
pub(super) fn is_missing(file: &Path) -> bool {
    matches!(file.try_exists(), Ok(false))
}

pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    // Busy, or locked by another connection of a database in memory. The other bits tell why.
    code(error).is_some_and(|code| [5, 6].contains(&(code & 0xff)))
}

/// SQLite's extended code.
pub(super) fn code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// Begins a transaction that may write: `BEGIN IMMEDIATE`.
///
/// A plain `pool.begin()` takes the write lock at its first write. If another writer came in
/// between, that write fails at once with "database is locked", whatever the busy timeout.
///
/// For a full disk, an I/O error or a conflict under `ON CONFLICT ROLLBACK`, SQLite undoes the
/// whole transaction, and what comes after it stands alone. So an error of a statement must end the
/// transaction, and must not be passed over.
///
/// # Errors
/// When another writer holds the lock for longer than the busy timeout.
///
/// # Cancel safety
/// A dropped call leaves no transaction: one that began is rolled back.
pub async fn begin(pool: &SqlitePool) -> crate::Result<Transaction<'static, Sqlite>> {
    Ok(begin_writing(pool).await.map_err(StoreError::of("begin"))?)
}

/// The same, for any pool. A connection that cannot begin one is closed.
pub(super) async fn begin_writing(
    pool: &SqlitePool,
) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
    loop {
        let mut connection = pool.acquire().await?;
        if connection.is_in_transaction() {
            // In a task of its own: sqlx passes over the next rollback of a connection for which
            // this one was not waited for.
            let ended = tokio::spawn(async move {
                match roll_back(&mut connection).await {
                    Ok(()) => Some(connection),
                    Err(_) => connection.close().await.ok().and(None),
                }
            });
            let Ok(Some(ended)) = ended.await else { continue };
            connection = ended;
        }
        let begin = "BEGIN IMMEDIATE".into_sql_str();
        return Transaction::begin(connection, Some(begin)).await;
    }
}

/// Ends the transaction of a connection, even if SQLite has done so by itself, as on a full disk.
///
/// sqlx 0.9.0 goes on counting that one, with the savepoints in it: whoever begins another on the
/// connection gets a savepoint, and a transaction that nothing ends. Each counts until its ROLLBACK
/// succeeds, so there has to be something to roll back.
pub(super) async fn roll_back(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    for depth in (1..=Manager::get_transaction_depth(connection)).rev() {
        if Manager::rollback(connection).await.is_ok() {
            continue;
        }
        // If a transaction is open after all, this fails.
        drop(connection.execute("BEGIN").await);
        if depth > 1 {
            let savepoint = format!("SAVEPOINT _sqlx_savepoint_{}", depth - 1);
            connection.execute(AssertSqlSafe(savepoint)).await?;
        }
        Manager::rollback(connection).await?;
    }
    Ok(())
}

/// Commits. If that fails, the connection is in no transaction either.
pub(super) async fn commit(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let committed = Manager::commit(connection).await;
    if committed.is_err() {
        drop(roll_back(connection).await);
    }
    committed
}
