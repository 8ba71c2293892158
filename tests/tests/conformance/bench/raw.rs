//! Rows as they lie in the tables.

use std::time::SystemTime;

use serde_json::Value;
use uuid::Uuid;

/// A row of the outbox table. Times are microseconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub struct RawRow {
    pub id: i64,
    pub queue: String,
    pub payload: Vec<u8>,
    pub headers: Option<Value>,
    pub attempts: i64,
    pub deliveries: i64,
    pub created: i64,
    pub due: i64,
    pub first: Option<i64>,
    pub last: Option<i64>,
    pub acquired: Option<i64>,
    pub token: Option<Uuid>,
    pub timer_id: Option<String>,
}

/// A row of the dead-letter table.
#[derive(Debug, Clone, PartialEq)]
pub struct RawLetter {
    pub id: i64,
    pub original_id: i64,
    pub queue: String,
    pub payload: Vec<u8>,
    pub headers: Option<Value>,
    pub deliveries: i64,
    pub created: i64,
    pub failed: i64,
    pub reason: String,
    pub exception: Option<String>,
    pub timer_id: Option<String>,
    pub kind: Option<String>,
    pub note: Option<String>,
    pub fingerprint: Option<String>,
}

/// Reads one out of a row of either database, columns in the order of the fields.
macro_rules! read_row {
    ($row:expr) => {
        RawRow {
            id: $row.get(0),
            queue: $row.get(1),
            payload: $row.get(2),
            headers: json($row.get(3)),
            attempts: $row.get(4),
            deliveries: $row.get(5),
            created: $row.get(6),
            due: $row.get(7),
            first: $row.get(8),
            last: $row.get(9),
            acquired: $row.get(10),
            token: $row.get(11),
            timer_id: $row.get(12),
        }
    };
}

macro_rules! read_letter {
    ($row:expr) => {
        RawLetter {
            id: $row.get(0),
            original_id: $row.get(1),
            queue: $row.get(2),
            payload: $row.get(3),
            headers: json($row.get(4)),
            deliveries: $row.get(5),
            created: $row.get(6),
            failed: $row.get(7),
            reason: $row.get(8),
            exception: $row.get(9),
            timer_id: $row.get(10),
            kind: $row.get(11),
            note: $row.get(12),
            fingerprint: $row.get(13),
        }
    };
}
pub(super) use {read_letter, read_row};

pub(super) fn json(text: Option<String>) -> Option<Value> {
    text.map(|text| serde_json::from_str(&text).unwrap())
}

/// A time as the tables count it.
pub fn micros(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap(),
        Err(before) => -i64::try_from(before.duration().as_micros()).unwrap(),
    }
}

/// A name in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
