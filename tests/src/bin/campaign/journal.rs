//! Files that processes append to, a line with one write each: what is written survives
//! the kill of the process that wrote it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::LazyLock;
use std::time::SystemTime;

/// Runs of handlers, written by the handlers' own bodies.
pub const RUNS: &str = "runs";
/// What the framework told, and what producers did.
pub const EVENTS: &str = "events";
/// Of a producer that was not told whether its transaction with this key has committed.
pub const UNKNOWN: &str = "unknown";

pub struct Journal {
    file: File,
    app: String,
}

impl Journal {
    pub fn open(folder: &Path, name: &str, app: &str) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(folder.join(name))?;
        Ok(Self { file, app: app.to_owned() })
    }

    /// # Panics
    /// When the line cannot be written: without it the run proves nothing.
    pub fn write(&self, words: &str) {
        let line = format!("{} {} {words}\n", now(), self.app);
        (&self.file).write_all(line.as_bytes()).expect("the journal can be written");
    }
}

/// Seconds by which this process's clock is off.
pub const OFF_BY: &str = "CAMPAIGN_CLOCK_OFF_BY";

static OFF: LazyLock<i64> = LazyLock::new(|| {
    let seconds: Option<i64> = std::env::var(OFF_BY).ok().and_then(|text| text.parse().ok());
    seconds.unwrap_or_default() * 1_000_000
});

/// The true time, in microseconds since 1970: servers on this machine read the same clock.
#[allow(clippy::disallowed_methods, reason = "what processes write is compared with it")]
pub fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX) - *OFF
}

/// A line: when, who, and the words behind.
pub struct Line {
    pub at: i64,
    pub app: String,
    pub words: Vec<String>,
}

impl Line {
    pub fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    pub fn number(&self, at: usize) -> i64 {
        self.word(at).parse().unwrap_or_default()
    }
}

/// Everything in a journal.
pub fn read(folder: &Path, name: &str) -> std::io::Result<Vec<Line>> {
    let text = match std::fs::read(folder.join(name)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let text = String::from_utf8_lossy(&text);
    let line = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let at = words.next()?.parse().ok()?;
        Some(Line { at, app: words.next()?, words: words.collect() })
    };
    Ok(text.lines().filter_map(line).collect())
}
