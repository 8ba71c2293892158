//! A file of its own for every test.

use std::path::PathBuf;
use std::time::Duration;

use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

use crate::backend;
use crate::server::scratch;

/// A fresh SQLite file in a folder of its own.
#[derive(Debug, Clone)]
pub struct SqliteFile {
    pub folder: PathBuf,
    pub pool: SqlitePool,
}

impl SqliteFile {
    /// Makes the file as `outbox::sqlite::connect` does; but who waits for another writer, on
    /// a machine that is busy with other things, does so for longer than its 5 s.
    ///
    /// # Panics
    /// When it cannot be made.
    pub async fn fresh() -> Self {
        let folder = scratch().join(backend::unique("outbox-test"));
        std::fs::create_dir_all(&folder).unwrap();
        let url = format!("sqlite:{}", folder.join("test.db").display());
        let made = outbox::sqlite::connect(&url).await.unwrap();
        let options = (*made.connect_options()).clone().busy_timeout(Duration::from_secs(60));
        made.close().await;
        let pool = SqlitePoolOptions::new().connect_with(options).await.unwrap();
        Self { pool, folder }
    }

    /// Deletes the file.
    pub async fn drop(&self) {
        self.pool.close().await;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
