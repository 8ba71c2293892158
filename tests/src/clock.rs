//! A server's clock that can be stepped while it runs, and a process whose clock is off:
//! libfaketime in front of them.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::backend::{skip, unique};
use crate::server::{Server, scratch};

const LIBRARY: &str = "faketime/libfaketime.so.1";

/// The clock of one server; its file is removed when dropped.
pub struct Clock(PathBuf);

impl Clock {
    /// A server with such a clock. `None`, after a line that says so, where libfaketime
    /// is not installed.
    ///
    /// # Panics
    /// When the server does not start.
    #[must_use]
    pub fn with_server(settings: &[(&str, &str)]) -> Option<(Self, Server)> {
        let (clock, variables) = Self::with_variables()?;
        let server = Server::start_with(settings, variables).unwrap();
        Some((clock, server))
    }

    /// The variables of a process with such a clock. `None` as there.
    ///
    /// # Panics
    /// When its file cannot be written.
    #[must_use]
    pub fn with_variables() -> Option<(Self, Vec<(&'static str, String)>)> {
        let Some(library) = library() else {
            skip("faketime", "libfaketime is not installed");
            return None;
        };
        let clock = Self(scratch().join(unique("outbox-clock")));
        clock.set(0);
        let mut variables = preloaded(&library).to_vec();
        variables.extend([
            ("FAKETIME_TIMESTAMP_FILE", clock.0.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
        ]);
        Some((clock, variables))
    }

    /// So many seconds ahead of the true time from now on, or behind it.
    ///
    /// # Panics
    /// When its file cannot be written.
    pub fn set(&self, seconds: i64) {
        // At once: a reader must not find half of it.
        let next = self.0.with_extension("next");
        std::fs::write(&next, format!("{seconds:+}")).unwrap();
        std::fs::rename(next, &self.0).unwrap();
    }
}

/// How far ahead of now that second is, counted from 1970.
///
/// # Panics
/// Before 1970.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "libfaketime counts from this machine's clock")]
pub fn ahead(second: i64) -> i64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    second - i64::try_from(now).unwrap()
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The variables of a process whose clock is so many seconds ahead, or behind, if
/// libfaketime is installed.
#[must_use]
pub fn off_by(seconds: i64) -> Option<Vec<(&'static str, String)>> {
    let mut variables = preloaded(&library()?).to_vec();
    variables.push(("FAKETIME", format!("{seconds:+}")));
    Some(variables)
}

/// Only what tells the time of day is changed, as it is in earnest.
fn preloaded(library: &Path) -> [(&'static str, String); 2] {
    [("LD_PRELOAD", library.display().to_string()), ("DONT_FAKE_MONOTONIC", "1".to_owned())]
}

/// Where Debian has it, on whichever processor.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let places = folders.map(|folder| folder.path()).chain([Path::new("/usr/lib").to_owned()]);
    places.map(|place| place.join(LIBRARY)).find(|path| path.exists())
}
