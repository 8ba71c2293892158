//! Tests with a database that does what it is asked for and does not answer.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::stopped::claimed_for;
use crate::engine::inbox::Job;
use crate::engine::lost::Lost;
use crate::engine::settlement::Settlement;
use crate::engine::settling::Settling;
use crate::engine::{Reader, Shared};
use crate::error::StoreError;
use crate::extract::States;
use crate::publish::{Due, Prepared};
use crate::schema::SchemaMismatch;
use crate::store::memory::MemoryStore;
use crate::store::{
    Claim, Claimed, Connections, Death, Depth, Expects, Extend, Handled, Inserted, Landed, Lease,
    Release, Result, Retry, Store, Taken, new_token,
};
use crate::subscriber::{Few, Subscriber, debug_chain};
use crate::telemetry::Sinks;

/// Leases are extended without an answer, and the first two times nothing is given back. A
/// statement that is too large has no answer either.
#[derive(Clone)]
pub(crate) struct Unanswered {
    rows: MemoryStore,
    claims: Claims,
    pub(crate) asked: Arc<Asked>,
}

#[derive(Clone, Copy)]
pub(crate) enum Claims {
    Answered,
    /// Answered this long after it has taken rows.
    Late(Duration),
    Unanswered,
    /// A deadlock, or a busy file.
    Refused,
    /// Unanswered after a while, and one statement at a time.
    UnansweredOnOneConnection,
}

/// What the database was asked for, how often, and how it behaves.
#[derive(Default)]
pub(crate) struct Asked {
    claims: AtomicUsize,
    pub(crate) releases: AtomicUsize,
    /// Those under a token that no row has are never answered.
    pub(crate) in_vain: AtomicBool,
    pub(crate) abandons: AtomicUsize,
    /// Acks that publish.
    pub(crate) publishing: AtomicUsize,
    /// Somebody holds every timer but `free`. A statement that waits for one is refused after a while.
    pub(crate) timers: AtomicBool,
    /// The server has no time for more acks at once that set timers.
    pub(crate) most_timers: AtomicUsize,
    connection: Mutex<()>,
    /// No lost claim is answered any more.
    pub(crate) hangs: AtomicBool,
    /// A row that somebody else has locked. A statement that waits for it is refused after a while.
    /// With any number but 0 here, extensions are answered.
    pub(crate) locked: AtomicI64,
    /// The same of whatever is acked.
    pub(crate) acks: AtomicBool,
    /// All rows up to this one are locked, too.
    pub(crate) locked_to: AtomicI64,
    /// How many more marks and extensions are done but never answered.
    pub(crate) silent: AtomicUsize,
    /// The server has no time for more acks or extensions at once than these.
    pub(crate) most: AtomicUsize,
    /// Marks and extensions have not arrived.
    pub(crate) on_its_way: AtomicBool,
    /// Milliseconds that it takes to extend leases or to bury.
    pub(crate) slow: AtomicU64,
    pub(crate) extends: AtomicUsize,
    /// Who holds a lease is never answered.
    pub(crate) unheld: AtomicBool,
}

impl Asked {
    fn is_locked(&self, id: i64) -> bool {
        id == self.locked.load(Ordering::SeqCst) || id <= self.locked_to.load(Ordering::SeqCst)
    }

    async fn answers(&self) {
        let less = |left: usize| left.checked_sub(1);
        if self.silent.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            pending::<()>().await;
        }
    }

    /// Refuses a statement for more leases than the server has time for.
    fn in_time(&self, leases: usize) -> Result<()> {
        let most = self.most.load(Ordering::SeqCst);
        if leases > most { Err(took_too_long()) } else { Ok(()) }
    }
}

impl Unanswered {
    pub(crate) fn new(rows: &MemoryStore, claims: Claims) -> Self {
        let (most, most_timers) = (usize::MAX.into(), usize::MAX.into());
        let asked = Asked { most_timers, most, ..Asked::default() };
        Self { rows: rows.clone(), claims, asked: asked.into() }
    }

    pub(crate) fn shared(self) -> Shared<Self> {
        let publisher = crate::Publisher::default();
        Shared::new(self, Arc::new(debug_chain), publisher, Sinks::default())
    }
}

fn away<T>() -> Result<T> {
    Err(StoreError::new("ask", "no answer", true))
}

fn refused<T>() -> Result<T> {
    let failed = StoreError::new("ask", "deadlock detected", true);
    Err(StoreError { perhaps_done: false, locked: true, ..failed })
}

fn took_too_long() -> StoreError {
    let failed = StoreError::new("ask", "canceling statement due to statement timeout", true);
    StoreError { perhaps_done: false, took_too_long: true, ..failed }
}

impl Store for Unanswered {
    type Wakes = <MemoryStore as Store>::Wakes;

    async fn claim(&self, claims: &[Claim]) -> Result<Vec<Taken>> {
        self.asked.claims.fetch_add(1, Ordering::SeqCst);
        match self.claims {
            Claims::Answered => self.rows.claim(claims).await,
            Claims::Late(time) => {
                let taken = self.rows.claim(claims).await;
                sleep(time).await;
                taken
            }
            Claims::Unanswered => away(),
            Claims::UnansweredOnOneConnection => {
                let _held = self.asked.connection.lock().await;
                sleep(TTL / 20).await;
                away()
            }
            Claims::Refused => refused(),
        }
    }

    async fn ack(&self, leases: &[Lease]) -> Result<Landed> {
        self.asked.in_time(leases.len())?;
        let held = self.asked.acks.load(Ordering::SeqCst);
        if held || leases.iter().any(|lease| self.asked.is_locked(lease.id)) {
            sleep(TTL / 10).await;
            return refused();
        }
        self.rows.ack(leases).await
    }

    async fn ack_publishing(&self, acks: &[Handled<'_>]) -> Result<(Landed, Inserted)> {
        self.asked.publishing.fetch_add(1, Ordering::SeqCst);
        let messages = acks.iter().flat_map(|handled| handled.messages);
        let timers: Vec<_> = messages.filter_map(|one| one.timer_id.as_deref()).collect();
        let held = self.asked.timers.load(Ordering::SeqCst);
        let held = held && timers.iter().any(|name| *name != "free");
        let too_many = timers.len() > self.asked.most_timers.load(Ordering::SeqCst);
        if held || too_many {
            sleep(TTL / 10).await;
            return if too_many { Err(took_too_long()) } else { refused() };
        }
        let messages = acks.iter().flat_map(|handled| handled.messages);
        match messages.map(Prepared::bytes).sum::<usize>() {
            ..=LARGE => self.rows.ack_publishing(acks).await,
            _ => away(),
        }
    }

    async fn retry(&self, retries: &[Retry]) -> Result<Landed> {
        self.rows.retry(retries).await
    }

    async fn bury(&self, deaths: &[Death<'_>]) -> Result<Landed> {
        sleep(Duration::from_millis(self.asked.slow.load(Ordering::SeqCst))).await;
        if deaths.iter().any(|death| self.asked.is_locked(death.lease.id)) {
            return refused();
        }
        self.rows.bury(deaths).await
    }

    async fn release(&self, releases: &[Release]) -> Result<Landed> {
        if self.asked.releases.fetch_add(1, Ordering::SeqCst) < 2 {
            return away();
        }
        let landed = self.rows.release(releases).await?;
        let in_vain = !landed.contains(&true) && self.asked.in_vain.load(Ordering::SeqCst);
        if in_vain { away() } else { Ok(landed) }
    }

    async fn extend(&self, leases: &[Extend]) -> Result<Landed> {
        self.asked.extends.fetch_add(1, Ordering::SeqCst);
        self.asked.in_time(leases.len())?;
        let locked = |one: &Extend| self.asked.is_locked(one.lease.id);
        let arrived = !self.asked.on_its_way.load(Ordering::SeqCst);
        let free: Vec<_> = leases.iter().copied().filter(|one| arrived && !locked(one)).collect();
        sleep(Duration::from_millis(self.asked.slow.load(Ordering::SeqCst))).await;
        let mut landed = self.rows.extend(&free).await?.into_iter();
        self.asked.answers().await;
        match self.asked.locked.load(Ordering::SeqCst) {
            0 => away(),
            _ => Ok(leases.iter().map(|one| !locked(one) && landed.next() == Some(true)).collect()),
        }
    }

    async fn held(&self, leases: &[Lease]) -> Result<Landed> {
        if self.asked.unheld.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
        Ok(leases.iter().map(|lease| self.asked.is_locked(lease.id)).collect())
    }

    async fn abandon(&self, claim: &Claim) -> Result<u64> {
        self.asked.abandons.fetch_add(1, Ordering::SeqCst);
        if matches!(self.claims, Claims::UnansweredOnOneConnection) {
            let _held = self.asked.connection.lock().await;
            sleep(TTL / 20).await;
            return Ok(0);
        }
        if self.asked.hangs.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
        self.rows.abandon(claim).await
    }

    async fn listen(&self) -> Result<Self::Wakes> {
        self.rows.listen().await
    }

    fn keeps_dead_letters(&self) -> bool {
        self.rows.keeps_dead_letters()
    }

    async fn validate(&self, autovacuum: bool) -> Result<SchemaMismatch> {
        self.rows.validate(autovacuum).await
    }

    async fn ping(&self) -> Result<()> {
        self.rows.ping().await
    }

    async fn depths(&self, queues: &[String], most: usize) -> Result<Vec<Depth>> {
        self.rows.depths(queues, most).await
    }

    fn connections(&self) -> Connections {
        self.rows.connections()
    }

    async fn close(&self) {
        self.rows.close().await;
    }
}

pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const LARGE: usize = 2 << 20;

fn claim(lease_ttl: Duration) -> Claim {
    Claim {
        queues: Arc::from([String::from("q")]),
        limit: 1,
        lease_ttl,
        token: new_token(),
        after: None,
        max_deliveries: Some(1),
        expects: Expects::Plenty,
    }
}

pub(crate) fn reader<S>(shared: &Shared<S>, queue: &str, changed: &Arc<Notify>) -> Arc<Reader> {
    let subscriber = Subscriber::new("s", queue, |_: crate::Context| async {});
    let subscriber = subscriber.max_deliveries(1).lease_ttl(TTL).max_poll(TTL);
    let (states, counts) = (States::default(), crate::Stats::default());
    Arc::new(Reader::new(subscriber, shared, &states, &counts, changed))
}

/// A store with this many rows.
pub(crate) async fn holding(rows: usize) -> MemoryStore {
    let store = MemoryStore::new(true);
    store.run(|_| {});
    let mut tx = store.begin();
    for _ in 0..rows {
        crate::Publisher::default().publish(&mut tx, "q", &1).await.expect("it answers");
    }
    tx.commit();
    store
}

pub(crate) async fn claimed(store: &MemoryStore, limit: usize) -> Vec<Job> {
    let claimed_at = Instant::now();
    let claims = [Claim { limit, ..claim(TTL) }];
    let rows = store.claim(&claims).await.expect("it answers").remove(0).rows;
    let job = |claimed| Job { claimed, claimed_at, deadline: claimed_at + TTL };
    rows.into_iter().map(job).collect()
}

/// As a worker takes them out of its inbox.
pub(crate) async fn taken(reader: &Reader, jobs: Vec<Job>) -> Few<Job> {
    let places = reader.inbox.reserve(jobs.len()).expect("it is empty");
    reader.inbox.fill(places, jobs.into_iter());
    reader.inbox.next(reader.subscriber.options.batch).await.expect("it is open")
}

/// An ack of each.
pub(crate) fn acked(jobs: &[Job], reader: &Arc<Reader>) -> Vec<Settling> {
    let ack = || Settlement::Ack { messages: Vec::new() };
    jobs.iter().map(|job| *Settling::of(reader, job).ruled(ack())).collect()
}

/// Acks that each publish one message, of these sizes in bytes.
pub(crate) fn publishing(jobs: &[Job], reader: &Arc<Reader>, sizes: &[usize]) -> Vec<Settling> {
    let message = |bytes| Prepared {
        queue: "copies".into(),
        payload: Bytes::from(vec![0; bytes]),
        headers: String::new(),
        due: Due::Now,
        timer_id: None,
        extend: false,
    };
    let ack = |bytes| Settlement::Ack { messages: vec![message(bytes)] };
    jobs.iter()
        .zip(sizes)
        .map(|(job, &bytes)| *Settling::of(reader, job).ruled(ack(bytes)))
        .collect()
}

/// Results of rows that nobody has.
pub(crate) fn acks(sizes: &[usize]) -> Vec<Settling> {
    let (now, at) = (Instant::now(), std::time::SystemTime::UNIX_EPOCH);
    let job = |_| {
        let claimed = Claimed::of_test(1, at, at, Bytes::new());
        Job { claimed, claimed_at: now, deadline: now + TTL }
    };
    let jobs: Vec<_> = sizes.iter().map(job).collect();
    let shared = Unanswered::new(&MemoryStore::new(true), Claims::Answered).shared();
    publishing(&jobs, &reader(&shared, "q", &Arc::default()), sizes)
}

/// The rests of a claim that keeps failing grow to half a minute.
#[tokio::test(start_paused = true)]
async fn a_lost_claim_waits_for_no_other_one_that_rests() {
    let store = MemoryStore::new(true);
    store.run(|_| {});
    let shared = Arc::new(Unanswered::new(&store, Claims::Answered).shared());
    let lost = || Lost { claim: claim(HOUR), reader: 0, sent: Instant::now() };
    let (turn, stop) = (Mutex::new(()), CancellationToken::new());
    let mut longest = Duration::ZERO;
    let first = lost().keep_trying(&shared, &turn, &stop);
    let others = async {
        for _ in 0..20 {
            sleep(Duration::from_secs(60)).await;
            let mut tx = store.begin();
            crate::Publisher::default().publish(&mut tx, "q", &1).await.unwrap();
            tx.commit();
            let other = lost();
            store.claim(std::slice::from_ref(&other.claim)).await.unwrap();
            let begun = Instant::now();
            assert_eq!(other.keep_trying(&shared, &turn, &stop).await, Some(0));
            longest = longest.max(begun.elapsed());
        }
        stop.cancel();
    };
    let (none, ()) = tokio::join!(first, others);
    assert_eq!(none, None);
    assert!(longest < Duration::from_millis(200), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_the_database_has_refused_is_not_given_back() {
    let refusing = Unanswered::new(&MemoryStore::new(true), Claims::Refused);
    let asked = Arc::clone(&refusing.asked);
    claimed_for(HOUR / 60, &Arc::new(refusing.shared())).await;
    assert!(asked.claims.load(Ordering::SeqCst) > 5, "it is tried again");
    assert_eq!(asked.abandons.load(Ordering::SeqCst), 0);
}
