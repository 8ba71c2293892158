//! The bench of the memory store.

use std::time::Duration;

use outbox::testing::store::{MemoryStore, MemoryTransaction};
use outbox::{Headers, MalformedHeaders, Publisher, Row};
use serde_json::Value;

use super::{Bench, RawLetter, RawRow, micros};

#[derive(Clone)]
pub struct Memory {
    store: MemoryStore,
    publisher: Publisher,
}

impl Bench for Memory {
    type Store = MemoryStore;
    type Tx = MemoryTransaction;
    type Mark = usize;

    const WRITERS_OVERLAP: bool = true;
    const IN_MEMORY: bool = true;

    async fn open() -> Option<Self> {
        Some(Self { store: MemoryStore::new(true), publisher: Publisher::default() })
    }

    async fn close(&self) {}

    fn store(&self) -> &MemoryStore {
        &self.store
    }

    fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    fn without_dlq(&self) -> Self {
        self.store.set_dead_letters(false);
        self.clone()
    }

    async fn begin(&self) -> MemoryTransaction {
        self.store.begin()
    }

    async fn commit(&self, tx: MemoryTransaction) {
        tx.commit();
    }

    async fn rollback(&self, tx: MemoryTransaction) {
        drop(tx);
    }

    async fn savepoint(&self, tx: &mut MemoryTransaction) -> usize {
        tx.savepoint()
    }

    async fn rollback_to(&self, tx: &mut MemoryTransaction, mark: &usize) {
        tx.rollback_to(*mark);
    }

    async fn release(&self, _: &mut MemoryTransaction, _: usize) {}

    async fn pending(&self, queue: &str, limit: u32) -> Vec<Row> {
        self.store.pending(queue, limit as usize)
    }

    async fn rows(&self) -> Vec<RawRow> {
        let raw = |row: Row| RawRow {
            headers: object(row.headers()),
            id: row.id,
            queue: row.queue,
            payload: row.payload.to_vec(),
            attempts: row.attempts_count.try_into().unwrap(),
            deliveries: row.deliveries_count.try_into().unwrap(),
            created: micros(row.created_at),
            due: micros(row.next_attempt_at),
            first: row.first_attempt_at.map(micros),
            last: row.last_attempt_at.map(micros),
            acquired: row.acquired_at.map(micros),
            token: row.acquired_token,
            timer_id: row.timer_id,
        };
        self.store.rows().into_iter().map(raw).collect()
    }

    async fn letters(&self) -> Vec<RawLetter> {
        let letters = self.store.dead_letters().into_iter();
        letters
            .map(|letter| RawLetter {
                headers: object(letter.headers()),
                id: letter.id,
                original_id: letter.original_id,
                queue: letter.queue,
                payload: letter.payload.to_vec(),
                deliveries: letter.deliveries_count.try_into().unwrap(),
                created: micros(letter.created_at),
                failed: micros(letter.failed_at),
                reason: letter.failure_reason.to_string(),
                exception: letter.last_exception,
                timer_id: letter.timer_id,
                kind: letter.error_kind,
                note: letter.note,
                fingerprint: letter.fingerprint,
            })
            .collect()
    }

    async fn now(&self) -> i64 {
        micros(self.store.now())
    }

    async fn age(&self, by: Duration) {
        self.store.advance(by);
    }

    async fn set_headers(&self, id: i64, headers: Option<&str>) {
        self.store.set_headers(id, headers);
    }

    async fn set_deliveries(&self, id: i64, count: u32) {
        self.store.alter(id, |row| row.deliveries_count = count.into());
    }

    async fn break_dlq(&self) {
        self.store.break_dead_letters(true);
    }

    async fn mend_dlq(&self) {
        self.store.break_dead_letters(false);
    }

    async fn refuse_letters_of(&self, _: &str) {
        self.store.break_dead_letters(true);
    }
}

/// Headers that are no object cannot be read here; a text that no case writes
/// stands for them.
fn object(headers: Result<Headers, MalformedHeaders>) -> Option<Value> {
    match headers {
        Ok(headers) if headers.is_empty() => None,
        Ok(headers) => {
            Some(headers.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect())
        }
        Err(_) => Some(Value::String("no object".into())),
    }
}
