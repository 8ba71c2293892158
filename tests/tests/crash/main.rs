//! The server is killed, and what it has answered but not yet written to its log is
//! undone: claims always, settles if the app does not wait for them.

mod apps;
mod books;
mod flushes;
mod settles;
mod statements;

use outbox_tests::backend::{require, skip};
use outbox_tests::db::Db;
use outbox_tests::server::Server;

/// A crash may come just when the server has written its log by itself, which it does
/// every ten seconds; so often it is tried again.
const TRIES: usize = 5;

/// A server that loses as much as it may, with empty tables; `None`, after a line that
/// says so, where there is no PostgreSQL.
async fn server() -> Option<(Server, Db)> {
    if !require("postgres") {
        return None;
    }
    let lossy = [("wal_writer_delay", "10s"), ("autovacuum", "off"), ("fsync", "on")];
    let server = match Server::start(&lossy) {
        Ok(server) => server,
        Err(error) => {
            skip("postgres", &format!("{error:#}"));
            return None;
        }
    };
    let db = Db::of(&server).await;
    Some((server, db))
}
