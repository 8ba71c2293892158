//! A server whose disk is full when the test says so: a library in front of its libc.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::backend::unique;
use crate::server::Server;

/// Its log.
pub const WAL: &str = "pg_wal";
/// A tablespace, of whatever server: see [`Server::tablespace`].
pub const LETTERS: &str = "letters";

/// The disk of one server; its files are removed when dropped.
pub struct Disk(PathBuf);

impl Disk {
    /// A server on such a disk, with room.
    ///
    /// # Panics
    /// When the server does not start, or there is no compiler: whoever links Rust has one.
    #[must_use]
    pub fn with_server(settings: &[(&str, &str)]) -> (Self, Server) {
        // Where a server may read, and libraries may be loaded from.
        let disk = Self(std::env::temp_dir().join(unique("outbox-disk")));
        std::fs::create_dir_all(&disk.0).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/full.c");
        let library = disk.0.join("full.so");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
        assert!(cc.status().unwrap().success(), "{cc:?}");
        let variables = vec![
            ("LD_PRELOAD", library.display().to_string()),
            ("FULL", disk.0.display().to_string()),
        ];
        let server = Server::start_with(settings, variables).unwrap();
        (disk, server)
    }

    /// Nothing more is written there.
    ///
    /// # Panics
    /// When that cannot be noted.
    pub fn fill(&self, folder: &str) {
        std::fs::write(self.0.join(folder), "").unwrap();
    }

    /// There is room again.
    ///
    /// # Panics
    /// When there was some.
    pub fn make_room(&self, folder: &str) {
        std::fs::remove_file(self.0.join(folder)).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
