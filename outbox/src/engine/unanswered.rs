//! Tests with a database that does what it is asked for, and does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::inbox::Job;
use super::settle::{Settlement, Settling, settle};
use super::{Reader, Shared, deliver};
use crate::error::StoreError;
use crate::extract::States;
use crate::publish::{Due, Prepared};
use crate::schema::SchemaMismatch;
use crate::store::memory::MemoryStore;
use crate::store::{
    Claim, Claimed, Connections, Death, Depth, Extend, Handled, Inserted, Landed, Lease, Release,
    Result, Retry, Store, Taken, new_token,
};
use crate::subscriber::{Subscriber, debug_chain};
use crate::telemetry::Sinks;

/// Leases are begun anew without an answer, and the first times nothing is given back. A
/// statement that is too large has none either.
#[derive(Clone)]
pub(crate) struct Unanswered(MemoryStore, Arc<AtomicUsize>);

fn away<T>() -> Result<T> {
    Err(StoreError::new("ask", "no answer", true))
}

impl Store for Unanswered {
    type Wakes = <MemoryStore as Store>::Wakes;

    async fn claim(&self, claims: &[Claim]) -> Result<Vec<Taken>> {
        self.0.claim(claims).await
    }

    async fn ack(&self, leases: &[Lease]) -> Result<Landed> {
        self.0.ack(leases).await
    }

    async fn ack_publishing(&self, acks: &[Handled<'_>]) -> Result<(Landed, Inserted)> {
        let messages = acks.iter().flat_map(|handled| handled.messages);
        match messages.map(Prepared::bytes).sum::<usize>() {
            ..=LARGE => self.0.ack_publishing(acks).await,
            _ => away(),
        }
    }

    async fn retry(&self, retries: &[Retry]) -> Result<Landed> {
        self.0.retry(retries).await
    }

    async fn bury(&self, deaths: &[Death]) -> Result<Landed> {
        self.0.bury(deaths).await
    }

    async fn release(&self, releases: &[Release]) -> Result<Landed> {
        match self.1.fetch_add(1, Ordering::SeqCst) {
            ..2 => away(),
            _ => self.0.release(releases).await,
        }
    }

    async fn extend(&self, leases: &[Extend]) -> Result<Landed> {
        self.0.extend(leases).await?;
        away()
    }

    async fn abandon(&self, claim: &Claim) -> Result<u64> {
        self.0.abandon(claim).await
    }

    async fn listen(&self) -> Result<Self::Wakes> {
        self.0.listen().await
    }

    async fn validate(&self, autovacuum: bool) -> Result<SchemaMismatch> {
        self.0.validate(autovacuum).await
    }

    async fn ping(&self) -> Result<()> {
        self.0.ping().await
    }

    async fn depths(&self, queues: &[String], most: usize) -> Result<Vec<Depth>> {
        self.0.depths(queues, most).await
    }

    fn connections(&self) -> Connections {
        self.0.connections()
    }

    fn keeps_dead_letters(&self) -> bool {
        self.0.keeps_dead_letters()
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

const TTL: Duration = Duration::from_secs(2);
const LARGE: usize = 2 << 20;

fn claim(limit: usize) -> Claim {
    Claim {
        queues: Arc::from([String::from("q")]),
        limit,
        lease_ttl: TTL,
        token: new_token(),
        after: None,
        max_deliveries: Some(1),
        expected: true,
    }
}

/// The store, with so many rows.
async fn holding(rows: usize) -> MemoryStore {
    let store = MemoryStore::new(true);
    store.run(|_| {});
    let mut tx = store.begin();
    for _ in 0..rows {
        crate::Publisher::default().publish(&mut tx, "q", &1).await.unwrap();
    }
    tx.commit();
    store
}

async fn claimed(store: &MemoryStore, limit: usize) -> Vec<Job> {
    let claimed_at = Instant::now();
    let rows = store.claim(&[claim(limit)]).await.unwrap().remove(0).rows;
    let job = |claimed| Job { claimed, claimed_at, deadline: claimed_at + TTL };
    rows.into_iter().map(job).collect()
}

fn shared(store: &MemoryStore) -> Shared<Unanswered> {
    let silent = Unanswered(store.clone(), Arc::default());
    Shared::new(silent, Arc::new(debug_chain), crate::Publisher::default(), Sinks::default())
}

fn reader<S>(shared: &Shared<S>) -> Arc<Reader> {
    let subscriber = Subscriber::new("s", "q", |_: crate::Context| async {});
    let subscriber = subscriber.max_deliveries(1).lease_ttl(TTL);
    let (states, counts) = (States::default(), crate::Stats::default());
    Arc::new(Reader::new(subscriber, shared, &states, &counts, &Arc::default()))
}

/// That publish a message with so many bytes.
fn publishing(jobs: &[Job], reader: &Arc<Reader>, sizes: &[usize]) -> Vec<Settling> {
    let message = |bytes| Prepared {
        queue: "copies".into(),
        payload: Bytes::from(vec![0; bytes]),
        headers: String::new(),
        due: Due::Now,
        timer_id: None,
        extend: false,
    };
    let ack = |bytes| Settlement::Ack { messages: vec![message(bytes)] };
    let each = jobs.iter().zip(sizes);
    each.map(|(job, &bytes)| Settling::of(reader, job).ruled(ack(bytes))).collect()
}

/// Results of nobody's rows, for tests of what becomes of many.
pub(super) fn acks(sizes: &[usize]) -> Vec<Settling> {
    let (now, at) = (Instant::now(), std::time::SystemTime::UNIX_EPOCH);
    let job = |_| {
        let claimed = Claimed::of_test(1, at, at, Bytes::new());
        Job { claimed, claimed_at: now, deadline: now + TTL }
    };
    let jobs: Vec<_> = sizes.iter().map(job).collect();
    publishing(&jobs, &reader(&shared(&MemoryStore::new(true))), sizes)
}

/// It would be found under the token of one that died while it ran alone, and condemned.
#[tokio::test(start_paused = true)]
async fn a_suspect_that_could_not_be_marked_in_time_is_given_back_for_as_long_as_a_lease() {
    let store = holding(1).await;
    // Whoever claimed it first has died.
    claimed(&store, 1).await;
    sleep(2 * TTL).await;
    let job = claimed(&store, 1).await.remove(0);
    let (shared, claimed_at) = (shared(&store), job.claimed_at);
    let reader = reader(&shared);
    let settled = deliver(&shared, &reader, smallvec::smallvec![job], claimed_at, None).await;
    assert_ne!(store.rows()[0].acquired_token, None, "it is marked");
    settle(&shared.store, settled.into_vec()).await;
    assert_eq!(store.rows()[0].acquired_token, None);
}

/// It never would be as a whole, and all of it would run again, for ever.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_too_large_to_be_answered_is_written_in_parts() {
    let store = holding(9).await;
    let (shared, jobs) = (shared(&store), claimed(&store, 9).await);
    let batch = publishing(&jobs, &reader(&shared), &[1 << 20; 9]);
    assert_eq!(settle(&shared.store, batch).await, 9);
    let rows = store.rows();
    assert_eq!((rows.len(), rows.iter().filter(|row| row.queue == "copies").count()), (9, 9));
}
