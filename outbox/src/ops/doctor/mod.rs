//! Finds what is wrong with the tables and the database around them, and which messages that wait
//! this program cannot read.

mod clock;
mod names;
mod payloads;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod queues;
mod report;
mod schema;
#[cfg(feature = "sqlite")]
mod sqlite;
mod trial;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use payloads::{Extent, Page, StoredMessage};
pub(crate) use queues::Waiting;
use report::Found;
pub use report::{Check, Finding, Report, Severity};

use super::{Desk, Operator};
use crate::app::App;
use crate::error::Result;
use crate::redacted::debug_only;
use crate::subscriber::Subscriber;

/// The limits above which something is a finding.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// How many processes will run this program; 1 by default. Their connections are counted
    /// together.
    pub processes: u32,
    /// How old a snapshot or an open transaction may be (PostgreSQL); 5 min by default.
    pub snapshot_age: Duration,
    /// How full the server's queue of notifications may be, from 0 to 1 (PostgreSQL); 0.1 by
    /// default. More than half full, it is an error.
    pub notify_usage: f64,
    /// How many dead rows the table may hold (PostgreSQL); 100,000 by default.
    pub dead_rows: u64,
    /// How long a notification may take (PostgreSQL); 2 s by default.
    pub notification: Duration,
    /// How far the database's clock may differ from this machine's; 1 s by default.
    pub clock_difference: Duration,
    /// How large the write-ahead log may be, in bytes (SQLite); 64 MiB by default.
    pub wal_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            processes: 1,
            snapshot_age: Duration::from_secs(300),
            notify_usage: 0.1,
            dead_rows: 100_000,
            notification: Duration::from_secs(2),
            clock_difference: Duration::from_secs(1),
            wal_bytes: 64 << 20,
        }
    }
}

type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Examines the tables and the database. With the handlers of a program, it also examines the
/// messages that wait for them.
///
/// It runs no handler and leaves nothing written.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # #[cfg(feature = "sqlite")] {
/// use outbox::ops::doctor::Severity;
/// # let folder = std::env::temp_dir().join(format!("outbox-doctor-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let url = format!("sqlite:{}", folder.join("shop.db").display());
/// let pool = outbox::sqlite::connect(&url).await?;     // "sqlite:shop.db"
/// outbox::migrate(&pool).await?;
///
/// let report = outbox::App::sqlite(pool).doctor()?.examine().await?;
/// for finding in &report.findings {
///     println!("{}: {}", finding.severity.as_str(), finding.what);
/// }
/// assert_eq!(report.count(Severity::Error), 0);
/// # std::fs::remove_dir_all(folder).unwrap();
/// # }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Doctor {
    operator: Operator,
    subscribers: Vec<Subscriber>,
    limits: Limits,
    /// How many rows of each table to decode, if not all.
    rows: Option<u64>,
    progress: Progress,
}

impl Operator {
    /// A doctor for a program that has no handlers: it does not look into the rows.
    #[must_use]
    pub fn doctor(&self) -> Doctor {
        Doctor {
            operator: self.clone(),
            subscribers: Vec::new(),
            limits: Limits::default(),
            rows: None,
            progress: Arc::new(|_, _| {}),
        }
    }
}

impl App {
    /// A doctor for this program, with the handlers that it would run.
    ///
    /// # Errors
    /// As [`App::operator`].
    pub fn doctor(&self) -> Result<Doctor> {
        let doctor = self.operator()?.doctor();
        Ok(Doctor { subscribers: self.subscribers(), ..doctor })
    }
}

/// Makes a check and keeps what it says.
macro_rules! make {
    ($report:ident, $name:literal, $($check:ident)::+ ($($with:expr),*)) => {{
        let mut found = $crate::ops::doctor::Found::by($name);
        let said = $($check)::+($($with,)* &mut found).await;
        $report.add(found, said);
    }};
}
pub(crate) use make;

impl Doctor {
    /// Sets the limits above which something is a finding.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Decodes at most this many rows of each table, the oldest first; all by default.
    #[must_use]
    pub fn rows(self, at_most: u64) -> Self {
        Self { rows: Some(at_most), ..self }
    }

    /// Calls `told` while rows are decoded: how many are done, of how many.
    #[must_use]
    pub fn on_progress(self, told: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self { progress: Arc::new(told), ..self }
    }

    /// Makes every check. A check that fails is a finding, and the others are still made.
    ///
    /// # Errors
    /// When the database cannot be reached at all.
    ///
    /// # Cancel safety
    /// A dropped call leaves nothing behind.
    pub async fn examine(&self) -> Result<Report> {
        self.operator.reach().await?;
        let mut report = Report::default();
        if self.operator.assumed {
            report.add(assumed(), Ok("nobody has named it".into()));
        }
        match &self.operator.desk {
            #[cfg(feature = "postgres")]
            Desk::Postgres(desk) => postgres::examine(desk, &self.limits, &mut report).await,
            #[cfg(feature = "sqlite")]
            Desk::Sqlite(desk) => sqlite::examine(desk, &self.limits, &mut report).await,
        }
        make!(report, "clock", clock::check(&self.operator, &self.limits));
        make!(report, "schema", schema::check(&self.operator));
        make!(report, "queues", queues::check(&self.operator, &self.subscribers));
        make!(report, "payloads", payloads::check(self));
        report.findings.sort_by_key(|one| std::cmp::Reverse(one.severity));
        Ok(report)
    }
}

/// The finding that nobody named the database. If a release lost its environment, every other check
/// examines an empty file.
fn assumed() -> Found {
    let mut found = Found::by("database");
    found.warning(
        "`DATABASE_URL` is not set: what was examined is the SQLite file `outbox.db` in the \
         current folder",
        "the program may use another database, and nothing is known about that one",
        "set `DATABASE_URL`; for this file, set it to `sqlite:outbox.db`",
    );
    found
}

debug_only!(doctor: Doctor => operator, subscribers, limits);
