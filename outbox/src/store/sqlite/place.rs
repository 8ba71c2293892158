//! Whether the file that is open is still the one that its name leads to. If somebody has replaced
//! or deleted it, the app would go on with a file that nobody else sees.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use sqlx::sqlite::SqliteConnectOptions;

use crate::error::StoreError;

/// Where the file was when the first connection was made, and which file it was. `None` for a
/// database in memory, and where files have no numbers.
#[derive(Clone)]
pub(super) struct Place {
    name: PathBuf,
    first: Arc<OnceLock<Option<(PathBuf, Numbers)>>>,
}

/// The numbers of a device and of a file on it.
type Numbers = (u64, u64);

impl Place {
    pub(super) fn of(options: &SqliteConnectOptions) -> Self {
        Self { name: options.get_filename().to_owned(), first: Arc::default() }
    }

    /// Notes the file at the first connection; later calls do nothing.
    pub(super) fn opened(&self) {
        self.first.get_or_init(|| {
            // Absolute, because the program may change its folder.
            let name = std::path::absolute(&self.name).ok()?;
            let numbers = numbers(&name).ok()?;
            Some((name, numbers))
        });
    }

    /// Fails if the file is lost.
    pub(super) fn known(&self, action: &'static str) -> Result<(), StoreError> {
        const LOST: &str = "the file was replaced or deleted under this program: restart it";
        if self.is_lost() { Err(StoreError::new(action, LOST, false)) } else { Ok(()) }
    }

    /// Whether the file has gone or is another one. An app goes on with a file that has no name any
    /// more, and nobody sees what it does there. Where one may not look any more nothing is known,
    /// so that is no loss. The look itself is short: whoever asks has just read the file.
    fn is_lost(&self) -> bool {
        let first = self.first.get().and_then(Option::as_ref);
        first.is_some_and(|(name, first)| match numbers(name) {
            Ok(now) => now != *first,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        })
    }
}

#[cfg(unix)]
fn numbers(file: &Path) -> io::Result<Numbers> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(file).map(|found| (found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn numbers(_: &Path) -> io::Result<Numbers> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_lost_when_it_has_gone_or_is_another_and_not_when_nobody_may_look() {
        let root = std::env::temp_dir().join(format!("outbox-place-{}", std::process::id()));
        let [folder, away] = ["folder", "away"].map(|name| root.join(name));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("shop.db");
        fs::write(&file, "").unwrap();
        let place = Place::of(&SqliteConnectOptions::new().filename(&file));
        place.opened();
        assert!(!place.is_lost());

        fs::rename(&folder, &away).unwrap();
        assert!(place.is_lost(), "it has gone");
        // Any other error than that. A test may run as a user who may look everywhere.
        fs::write(&folder, "").unwrap();
        assert!(!place.is_lost(), "a file stands in the way");

        fs::remove_file(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "").unwrap();
        assert!(place.is_lost(), "it is another one");
        fs::rename(away.join("shop.db"), &file).unwrap();
        assert!(!place.is_lost(), "it is back");
        fs::remove_dir_all(root).unwrap();
    }
}
