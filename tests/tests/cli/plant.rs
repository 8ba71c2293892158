//! Dead letters as a test wants them.

use outbox_tests::db::Db;
pub use outbox_tests::letters::id_of;

/// Open letters of a queue, a second apart, the first the oldest; the payload of letter
/// `n` is `{"id": n }`.
pub async fn plant(db: &Db, queue: &str, count: u32) {
    outbox_tests::letters::plant(db, queue, count, "'{\"id\": ' || n || ' }'").await;
}
