//! The store of one simulated process. It has the tables that all processes share, behind a
//! connection on which statements hang, fail and go unanswered.

use std::future::{Future, pending};
use std::panic::resume_unwind;
use std::sync::Arc;

use super::ledger::Running;
use super::process::{Process, wait};
use super::told::{Fault, Place, Told};
use super::wakes::FaultyWakes;
use super::world::World;
use crate::error::StoreError;
use crate::schema::SchemaMismatch;
use crate::store::memory::MemoryStore;
use crate::store::{
    Claim, Connections, Death, Depth, Extend, Handled, Inserted, Landed, Lease, Release, Result,
    Retry, Store, Taken,
};
use crate::testing::Ending;

/// The memory store with faults.
#[derive(Clone)]
pub(crate) struct FaultyStore {
    pub(super) world: Arc<World>,
    pub(super) process: Arc<Process>,
}

impl FaultyStore {
    async fn send<T, F>(
        &self,
        action: &'static str,
        statement: impl FnOnce(MemoryStore) -> F + Send + 'static,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        let Self { world, process } = self;
        let session = process.session;
        let dead = || async { pending::<Result<T>>().await };
        if process.is_dead() {
            return dead().await;
        }
        world.tell(&Told::Sent { session, action });
        let crash = world.crash(action);
        let fault = world.fault(action);
        world.moment().pass().await;
        if crash == Some(Place::Before(action)) {
            process.die(world, Place::Before(action));
            return dead().await;
        }
        if let Some(fault) = fault {
            world.tell(&Told::Fault { session, action, fault });
        }
        if let Some(fault @ (Fault::Refused | Fault::Undone | Fault::Busy)) = fault {
            world.moment().pass().await;
            return Err(failed(action, fault));
        }
        let waits = process.waits(world, fault);
        let store = world.store.session(session);
        // On the server: the statement goes on when nobody waits for it any more.
        let done = tokio::spawn(async move {
            wait(waits.sent).await;
            statement(store).await
        });
        if fault == Some(Fault::Late) {
            world.moment().pass().await;
            return Err(failed(action, Fault::Unanswered));
        }
        let answer = done.await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        if crash == Some(Place::After(action)) {
            process.die(world, Place::After(action));
            return dead().await;
        }
        wait(waits.answered).await;
        world.moment().pass().await;
        if fault == Some(Fault::Unanswered) {
            Err(failed(action, Fault::Unanswered))
        } else {
            answer
        }
    }
}

fn failed(action: &'static str, fault: Fault) -> StoreError {
    let why = match fault {
        Fault::Refused => "refused",
        Fault::Busy => "busy",
        _ => "the connection broke off",
    };
    let told = format!("{why}, as the simulation's seed says");
    let failed = StoreError::new(action, told, fault != Fault::Refused);
    StoreError { perhaps_done: fault != Fault::Busy, ..failed }
}

impl Store for FaultyStore {
    type Wakes = FaultyWakes;

    async fn claim(&self, claims: &[Claim]) -> Result<Vec<Taken>> {
        let claims = claims.to_vec();
        self.send("claim", move |store| async move { store.claim(&claims).await }).await
    }

    async fn ack(&self, leases: &[Lease]) -> Result<Landed> {
        let (leases, ledger) = (leases.to_vec(), Arc::clone(&self.world.ledger));
        // Under `AckFirst` the handler begins when this is answered. By then there is no row left.
        let _running = Running::begin(Arc::clone(&ledger));
        let statement = move |store: MemoryStore| async move {
            let landed = store.ack(&leases).await?;
            ledger.settled(&landed, leases.iter().map(|lease| (*lease, Ending::Acked)));
            Ok(landed)
        };
        self.send("ack", statement).await
    }

    async fn ack_publishing(&self, acks: &[Handled<'_>]) -> Result<(Landed, Inserted)> {
        let acks: Vec<_> = acks.iter().map(|ack| (ack.lease, ack.messages.to_vec())).collect();
        let ledger = Arc::clone(&self.world.ledger);
        let statement = move |store: MemoryStore| async move {
            let acks: Vec<_> =
                acks.iter().map(|(lease, messages)| Handled { lease: *lease, messages }).collect();
            let (landed, inserted) = store.ack_publishing(&acks).await?;
            ledger.settled(&landed, acks.iter().map(|ack| (ack.lease, Ending::Acked)));
            Ok((landed, inserted))
        };
        self.send("ack_publishing", statement).await
    }

    async fn retry(&self, retries: &[Retry]) -> Result<Landed> {
        let (retries, ledger) = (retries.to_vec(), Arc::clone(&self.world.ledger));
        let statement = move |store: MemoryStore| async move {
            let landed = store.retry(&retries).await?;
            let endings = retries.iter().map(|one| (one.lease, Ending::Retried(one.delay)));
            ledger.settled(&landed, endings);
            Ok(landed)
        };
        self.send("retry", statement).await
    }

    async fn bury(&self, deaths: &[Death<'_>]) -> Result<Landed> {
        let deaths: Vec<_> = deaths.iter().map(Death::owned).collect();
        let ledger = Arc::clone(&self.world.ledger);
        // Its answer may never come.
        ledger.to_be_buried(deaths.iter().map(|one| one.lease));
        let statement = move |store: MemoryStore| async move {
            let landed = store.bury(&deaths).await?;
            let endings = deaths.iter().map(|one| (one.lease, Ending::Terminal(one.reason)));
            ledger.settled(&landed, endings);
            Ok(landed)
        };
        self.send("bury", statement).await
    }

    async fn release(&self, releases: &[Release]) -> Result<Landed> {
        let (releases, ledger) = (releases.to_vec(), Arc::clone(&self.world.ledger));
        let statement = move |store: MemoryStore| async move {
            let landed = store.release(&releases).await?;
            // What gives a row back because of its letter looks like a snooze. Asked first, because
            // `settled` locks what is asked.
            let snoozed = releases.iter().map(|one| match one.due_in {
                Some(delay) if !ledger.was_to_be_buried(one.lease) => {
                    (one.lease, Ending::Snoozed(delay))
                }
                _ => (one.lease, Ending::Unwritten),
            });
            let snoozed: Vec<_> = snoozed.collect();
            ledger.settled(&landed, snoozed.into_iter());
            Ok(landed)
        };
        self.send("release", statement).await
    }

    async fn extend(&self, leases: &[Extend]) -> Result<Landed> {
        let (leases, ledger) = (leases.to_vec(), Arc::clone(&self.world.ledger));
        let statement = move |store: MemoryStore| async move {
            let landed = store.extend(&leases).await?;
            let hits = leases.iter().zip(&landed).filter(|&(_, &hit)| hit);
            hits.for_each(|(one, _)| ledger.renamed(one.lease, one.token));
            Ok(landed)
        };
        self.send("extend", statement).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<u64> {
        let claim = claim.clone();
        self.send("abandon", move |store| async move { store.abandon(&claim).await }).await
    }

    async fn listen(&self) -> Result<FaultyWakes> {
        self.send("listen", |_| async { Ok(()) }).await?;
        Ok(FaultyWakes { world: Arc::clone(&self.world), mailbox: self.world.mailbox() })
    }

    fn wakes_only_sleepers(&self) -> bool {
        self.world.weather.wakes_only_sleepers
    }

    fn keeps_dead_letters(&self) -> bool {
        self.world.store.keeps_dead_letters()
    }

    async fn validate(&self, autovacuum: bool) -> Result<SchemaMismatch> {
        self.world.store.validate(autovacuum).await
    }

    async fn ping(&self) -> Result<()> {
        self.world.store.ping().await
    }

    async fn depths(&self, queues: &[String], most: usize) -> Result<Vec<Depth>> {
        self.world.store.depths(queues, most).await
    }

    fn connections(&self) -> Connections {
        self.world.store.connections()
    }

    async fn close(&self) {}
}
