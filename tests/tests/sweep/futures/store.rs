//! What the engine asks of a store.

use std::time::Duration;

use outbox::testing::store::{
    Extend, Lease, PgStore, Release, Retry, SqliteStore, Store, Wakes, ack_publishing, new_token,
};
use outbox::{Outgoing, Publisher};
use outbox_tests::db::{Db, Pool};
use outbox_tests::letters::death;
use outbox_tests::on_both;
use outbox_tests::wait::{eventually, soon};
use tokio::time::timeout;

use super::super::LEASE;
use super::ground::{Before, Ground, claim, claimed};
use super::{MOST, polled, swept_on};

on_both!(one thread: a_statement_of_the_engine_may_be_dropped_at_any_point);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Claim,
    Ack,
    AckPublishing,
    Retry,
    Bury,
    Release,
    Extend,
    Abandon,
    Listen,
    Validate,
    Ping,
    Depths,
    Close,
}

const ALL: [Call; 13] = [
    Call::Claim,
    Call::Ack,
    Call::AckPublishing,
    Call::Retry,
    Call::Bury,
    Call::Release,
    Call::Extend,
    Call::Abandon,
    Call::Listen,
    Call::Validate,
    Call::Ping,
    Call::Depths,
    Call::Close,
];

/// Of the functions that they run.
pub const NAMES: [&str; 18] = [
    "store/mod.rs claim",
    "store/mod.rs ack",
    "store/mod.rs ack_publishing",
    "store/mod.rs retry",
    "store/mod.rs bury",
    "store/mod.rs release",
    "store/mod.rs extend",
    "store/mod.rs held",
    "store/mod.rs abandon",
    "store/mod.rs listen",
    "store/mod.rs validate",
    "store/mod.rs ping",
    "store/mod.rs depths",
    "store/mod.rs close",
    "store/mod.rs next",
    "store/mod.rs sleep_on",
    "testing/mod.rs ack_publishing",
    "testing/mod.rs ack_publishing_counted",
];

async fn a_statement_of_the_engine_may_be_dropped_at_any_point(db: &Db) {
    let ground = Ground::of(db).await;
    let names = db.names.clone();
    let all = match &ground.pool {
        Pool::Postgres(pool) => sweep(&ground, || PgStore::new(pool, names.clone())).await,
        Pool::Sqlite(pool) => sweep(&ground, || SqliteStore::new(pool, names.clone())).await,
    };
    swept_on(db, "statements of the engine", all);
}

/// Rows that are leased, rows that are free, receipts, letters.
type State = [i64; 4];

const HELD: State = [1, 0, 0, 0];
const FREE: State = [0, 1, 0, 0];

/// How often something was dropped.
async fn sweep<S: Store>(ground: &Ground<'_>, open: impl Fn() -> S) -> usize {
    let mut all = 0;
    for call in ALL {
        let (mut store, mut times) = (open(), 0);
        loop {
            let lease = call.prepare(ground, &store).await;
            let ended = polled(times, call.run(&store, lease)).await;
            is_quiet(ground, &store, call).await;
            let (state, whole) = (state(ground.db).await, call.done());
            let nothing = ended.is_none() && state == call.before();
            assert!(nothing || state == whole, "{call:?} after {times} polls: {state:?}");
            if call == Call::Close {
                store = open();
            }
            let lease = call.prepare(ground, &store).await;
            soon("the next call", call.run(&store, lease)).await;
            assert_eq!(self::state(ground.db).await, whole, "{call:?} after {times} polls");
            if call == Call::Close {
                store = open();
            }
            if ended.is_some() {
                break;
            }
            times += 1;
            assert!(times < MOST, "{call:?} does not end");
        }
        println!("{call:?}: dropped after 0 to {} polls", times.saturating_sub(1));
        all += times;
        soon("it closes", store.close()).await;
    }
    all
}

/// What was dropped is over, on the server as well.
async fn is_quiet<S: Store>(ground: &Ground<'_>, store: &S, call: Call) {
    eventually("it is quiet", async || {
        let pool = store.connections();
        let users = i64::from(ground.size());
        let open = i64::try_from(pool.open).unwrap() + users;
        // The last one that listened stays until there is another.
        let most = if call == Call::Listen { open + 1 } else { open };
        let rests = !ground.db.is_postgres() || (open..=most).contains(&ground.sessions().await);
        pool.idle == pool.open && rests
    })
    .await;
    ground.rests().await.unwrap();
}

async fn state(db: &Db) -> State {
    [
        db.leased().await,
        db.int("SELECT count(*) FROM outbox WHERE queue = 'q' AND acquired_at IS NULL").await,
        db.int("SELECT count(*) FROM outbox WHERE queue = 'receipts'").await,
        db.letters().await,
    ]
}

impl Call {
    fn before(self) -> State {
        if self == Self::Claim { FREE } else { HELD }
    }

    fn done(self) -> State {
        match self {
            Self::Ack => [0; 4],
            Self::AckPublishing => [0, 0, 1, 0],
            Self::Bury => [0, 0, 0, 1],
            Self::Retry | Self::Release | Self::Abandon => FREE,
            _ => HELD,
        }
    }

    /// A row, leased if the call is about a lease.
    async fn prepare<S: Store>(self, ground: &Ground<'_>, store: &S) -> Lease {
        ground.prepare(Before::Message).await;
        if self == Self::Claim { Lease { id: 0, token: new_token() } } else { claimed(store).await }
    }

    async fn run<S: Store>(self, store: &S, lease: Lease) {
        let leases = [lease];
        match self {
            Self::Claim => drop(store.claim(&[claim(lease.token)]).await.unwrap()),
            Self::Ack => drop(store.ack(&leases).await.unwrap()),
            Self::AckPublishing => {
                let message = vec![Outgoing::new("receipts", &1)];
                let publisher = Publisher::default();
                ack_publishing(store, &publisher, [(lease, message)]).await.unwrap();
            }
            Self::Retry => drop(store.retry(&[Retry { lease, delay: LEASE }]).await.unwrap()),
            Self::Bury => drop(store.bury(&[death(lease)]).await.unwrap()),
            Self::Release => drop(store.release(&[release(lease)]).await.unwrap()),
            Self::Extend => {
                let token = lease.token;
                store.extend(&[Extend { lease, token }]).await.unwrap();
                store.held(&leases).await.unwrap();
            }
            Self::Abandon => drop(store.abandon(&claim(lease.token)).await.unwrap()),
            Self::Listen => {
                let mut wakes = store.listen().await.unwrap();
                wakes.sleep_on(&["q"]).await.unwrap();
                wakes.sleep_on(&[]).await.unwrap();
                // There are none: it waits until it is dropped.
                let _ = timeout(Duration::from_millis(20), wakes.next()).await;
            }
            Self::Validate => drop(store.validate(true).await.unwrap()),
            Self::Ping => store.ping().await.unwrap(),
            Self::Depths => drop(store.depths(&["q".into()], 10).await.unwrap()),
            Self::Close => store.close().await,
        }
    }
}

fn release(lease: Lease) -> Release {
    Release { lease, due_in: Some(LEASE), uncount: 0, claimed_at: None }
}
