//! A file of its own for every test.

use std::path::PathBuf;

use sqlx::sqlite::SqlitePool;

use crate::backend;

/// A fresh SQLite file in a folder of its own.
#[derive(Debug, Clone)]
pub struct SqliteFile {
    pub folder: PathBuf,
    pub pool: SqlitePool,
}

impl SqliteFile {
    /// Makes the file as `outbox::sqlite::connect` does.
    ///
    /// # Panics
    /// When it cannot be made.
    pub async fn fresh() -> Self {
        let folder = std::env::temp_dir().join(backend::unique("outbox-test"));
        std::fs::create_dir_all(&folder).unwrap();
        let url = format!("sqlite:{}", folder.join("test.db").display());
        Self { pool: outbox::sqlite::connect(&url).await.unwrap(), folder }
    }

    /// Deletes the file.
    pub async fn drop(&self) {
        self.pool.close().await;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
