//! What is left in the tables of each store, in one form.

use std::time::{Duration, SystemTime};

use outbox::testing::TestBroker;
use outbox_tests::db::Db;

use super::HOUR;

/// A row that is left.
#[derive(Debug, PartialEq, Eq)]
pub struct Left {
    pub queue: String,
    pub payload: String,
    pub attempts: i64,
    pub deliveries: i64,
    /// In how many hours it is due; zero when it is due now.
    pub hours: i64,
}

/// A dead letter.
#[derive(Debug, PartialEq, Eq)]
pub struct Letter {
    pub payload: String,
    pub reason: String,
    pub kind: Option<String>,
    pub exception: Option<String>,
    pub note: Option<String>,
}

pub fn rows(broker: &TestBroker) -> Vec<Left> {
    let left = |row: outbox::Row| Left {
        hours: hours(row.next_attempt_at, broker.now()),
        queue: row.queue,
        payload: String::from_utf8_lossy(&row.payload).into_owned(),
        attempts: row.attempts_count.cast_signed(),
        deliveries: row.deliveries_count.cast_signed(),
    };
    broker.rows().into_iter().map(left).collect()
}

pub fn letters(broker: &TestBroker) -> Vec<Letter> {
    let letter = |letter: outbox::DeadLetter| Letter {
        payload: String::from_utf8_lossy(&letter.payload).into_owned(),
        reason: letter.failure_reason.as_str().to_owned(),
        kind: letter.error_kind,
        exception: letter.last_exception,
        note: letter.note,
    };
    broker.dlq_rows().into_iter().map(letter).collect()
}

/// Rounded: the databases' clocks run while a case does.
fn hours(due: SystemTime, now: SystemTime) -> i64 {
    let wait = due.duration_since(now).unwrap_or(Duration::ZERO);
    i64::try_from((wait + HOUR / 2).as_secs() / 3600).unwrap()
}

/// Between the columns of a row in a text.
const BETWEEN: char = '\u{1f}';

async fn table(db: &Db, columns: &[&str], rest: &str) -> Vec<Vec<Option<String>>> {
    let joined: Vec<_> = columns.iter().map(|one| format!("coalesce({one}, '-')")).collect();
    let between = if db.is_postgres() { "|| chr(31) ||" } else { "|| char(31) ||" };
    let lines = db.texts(format!("SELECT {} FROM {rest}", joined.join(between))).await;
    let cell = |cell: &str| (cell != "-").then(|| cell.to_owned());
    lines.iter().map(|line| line.split(BETWEEN).map(cell).collect()).collect()
}

fn payload(db: &Db) -> &'static str {
    if db.is_postgres() { "convert_from(payload, 'UTF8')" } else { "CAST(payload AS text)" }
}

pub async fn rows_of(db: &Db) -> Vec<Left> {
    let hours = if db.is_postgres() {
        "round(greatest(extract(epoch FROM next_attempt_at - clock_timestamp()), 0) / 3600)"
    } else {
        "max(0, next_attempt_at / 1000000 - unixepoch() + 1800) / 3600"
    };
    let hours = format!("CAST({hours} AS text)");
    let columns = [
        "queue",
        payload(db),
        "CAST(attempts_count AS text)",
        "CAST(deliveries_count AS text)",
        &hours,
    ];
    let rows = table(db, &columns, "outbox ORDER BY id").await;
    let left = |row: Vec<Option<String>>| {
        let mut cells = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || cells.next().unwrap();
        let (queue, payload) = (next(), next());
        let mut number = || next().parse().unwrap();
        Left { queue, payload, attempts: number(), deliveries: number(), hours: number() }
    };
    rows.into_iter().map(left).collect()
}

pub async fn letters_of(db: &Db) -> Vec<Letter> {
    let columns = [payload(db), "failure_reason", "error_kind", "last_exception", "note"];
    let letters = table(db, &columns, "outbox_dlq ORDER BY original_id").await;
    let letter = |row: Vec<Option<String>>| {
        let mut cells = row.into_iter();
        let mut next = || cells.next().unwrap();
        Letter {
            payload: next().unwrap(),
            reason: next().unwrap(),
            kind: next(),
            exception: next(),
            note: next(),
        }
    };
    letters.into_iter().map(letter).collect()
}
