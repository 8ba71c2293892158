//! Tests with a database that does what it is asked for, and does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::inbox::Job;
use super::settle::settle;
use super::{Reader, Shared, deliver};
use crate::error::StoreError;
use crate::extract::States;
use crate::schema::SchemaMismatch;
use crate::store::memory::MemoryStore;
use crate::store::{
    Claim, Connections, Death, Depth, Extend, Handled, Inserted, Landed, Lease, Release, Result,
    Retry, Store, Taken, new_token,
};
use crate::subscriber::{Subscriber, debug_chain};
use crate::telemetry::Sinks;

/// Leases are begun anew without an answer, and the first times nothing is given back.
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
        self.0.ack_publishing(acks).await
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

/// It would be found under the token of one that died while it ran alone, and condemned.
#[tokio::test(start_paused = true)]
async fn a_suspect_that_could_not_be_marked_in_time_is_given_back_for_as_long_as_a_lease() {
    let store = MemoryStore::new(true);
    store.run(|_| {});
    let mut tx = store.begin();
    crate::Publisher::default().publish(&mut tx, "q", &1).await.unwrap();
    tx.commit();
    let claim = || Claim {
        queues: Arc::from([String::from("q")]),
        limit: 1,
        lease_ttl: TTL,
        token: new_token(),
        after: None,
        max_deliveries: Some(1),
        expected: true,
    };
    // Whoever claimed it first has died.
    store.claim(&[claim()]).await.unwrap();
    sleep(2 * TTL).await;
    let claimed_at = Instant::now();
    let claimed = store.claim(&[claim()]).await.unwrap().remove(0).rows.remove(0);
    let silent = Unanswered(store.clone(), Arc::default());
    let shared =
        Shared::new(silent, Arc::new(debug_chain), crate::Publisher::default(), Sinks::default());
    let subscriber = Subscriber::new("s", "q", |_: crate::Context| async {});
    let subscriber = subscriber.max_deliveries(1).lease_ttl(TTL);
    let (states, counts) = (States::default(), crate::Stats::default());
    let reader = Arc::new(Reader::new(subscriber, &shared, &states, &counts, &Arc::default()));
    let job = Job { claimed, claimed_at, deadline: claimed_at + TTL };
    let settled = deliver(&shared, &reader, smallvec::smallvec![job], claimed_at, None).await;
    assert_ne!(store.rows()[0].acquired_token, None, "it is marked");
    settle(&shared.store, settled.into_vec()).await;
    assert_eq!(store.rows()[0].acquired_token, None);
}
