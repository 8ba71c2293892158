//! Whether the file that is open is still the one of its name.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use sqlx::sqlite::SqliteConnectOptions;

/// Where the file was when the first connection was made, and which one. `None` of a database
/// in memory, and where files have no numbers.
#[derive(Clone)]
pub(super) struct Place {
    name: PathBuf,
    first: Arc<OnceLock<Option<(PathBuf, Numbers)>>>,
}

/// Of a device and of a file on it.
type Numbers = (u64, u64);

impl Place {
    pub(super) fn of(options: &SqliteConnectOptions) -> Self {
        Self { name: options.get_filename().to_owned(), first: Arc::default() }
    }

    /// For the first connection; later ones do nothing.
    pub(super) fn opened(&self) {
        self.first.get_or_init(|| {
            // The program may change its folder.
            let name = std::path::absolute(&self.name).ok()?;
            let numbers = numbers(&name)?;
            Some((name, numbers))
        });
    }

    /// An app goes on with a file that has no name any more, and nobody sees what it does there.
    /// The look itself is short: whoever asks has just read the file.
    pub(super) fn is_lost(&self) -> bool {
        let first = self.first.get().and_then(Option::as_ref);
        first.is_some_and(|(name, first)| numbers(name).as_ref() != Some(first))
    }
}

#[cfg(unix)]
fn numbers(file: &std::path::Path) -> Option<Numbers> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(file).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn numbers(_: &std::path::Path) -> Option<Numbers> {
    None
}
