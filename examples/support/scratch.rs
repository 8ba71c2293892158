//! A database that goes away.

use std::path::PathBuf;

use sqlx::SqlitePool;

/// A folder for the SQLite file of an example. Dropping it removes it, also when
/// the example fails.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> std::io::Result<Self> {
        let mut number = 0;
        loop {
            let name = format!("outbox-example-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            match std::fs::create_dir(&folder) {
                Ok(()) => return Ok(Self(folder)),
                // Left by a process of the same id that was killed.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the file and makes the outbox tables.
    pub async fn open(&self) -> outbox::Result<SqlitePool> {
        let url = format!("sqlite:{}", self.0.join("shop.db").display());
        let pool = outbox::sqlite::connect(&url).await?;
        outbox::migrate(&pool).await?;
        Ok(pool)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
