//! Clients that claim the same few rows as fast as they can, with leases so short that many
//! run out: no row is ever held by two.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::Outgoing;
use outbox::testing::store::{Claim, Expects, Lease, PgStore, Release, Store, new_token};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::PATIENCE;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

on_postgres!(of_eight_clients_that_claim_at_once_no_two_hold_a_row);

const CLIENTS: u64 = 8;
/// At least, and until so many rows were claimed.
const FOR: Duration = Duration::from_secs(5);
const ENOUGH: usize = 1000;
const TTL: Duration = Duration::from_millis(200);
const ROWS: i64 = 60;

/// Every claim of a row, and whose place it took, as the server saw it.
const AUDIT: [&str; 3] = [
    "CREATE TABLE claims (id bigint, at timestamptz, before uuid, since timestamptz)",
    "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO claims
        VALUES (NEW.id, NEW.acquired_at, OLD.acquired_token, OLD.acquired_at);
        RETURN NULL;
    END $$",
    "CREATE TRIGGER note AFTER UPDATE ON outbox FOR EACH ROW
        WHEN (NEW.acquired_token IS DISTINCT FROM OLD.acquired_token
              AND NEW.acquired_token IS NOT NULL)
        EXECUTE FUNCTION note()",
];

/// A row was one client's from here to there at least: from the answer, until it gave the
/// row away or a lease had gone by since it asked.
struct Held {
    from: Instant,
    to: Instant,
}

type Book = BTreeMap<i64, Vec<Held>>;

/// What it claims it keeps, gives back or acks, and publishes anew what it has acked.
async fn client(store: PgStore, db: Arc<Db>, seed: u64, claimed: Arc<AtomicUsize>) -> Book {
    let (mut rng, mut book) = (fastrand::Rng::with_seed(seed), Book::new());
    let begun = Instant::now();
    let enough = || claimed.load(Ordering::SeqCst) >= ENOUGH;
    while begun.elapsed() < FOR || begun.elapsed() < PATIENCE && !enough() {
        let claim = Claim {
            queues: Arc::from([String::from("q")]),
            limit: rng.usize(1..8),
            lease_ttl: TTL,
            token: new_token(),
            after: None,
            max_deliveries: None,
            expects: rng.choice([Expects::Few, Expects::Many, Expects::Plenty]).unwrap(),
        };
        let sent = Instant::now();
        let rows = store.claim(std::slice::from_ref(&claim)).await.unwrap().remove(0).rows;
        let from = Instant::now();
        claimed.fetch_add(rows.len(), Ordering::SeqCst);
        let leases: Vec<_> =
            rows.iter().map(|one| Lease { id: one.row.id, token: claim.token }).collect();
        let away = rng.u32(0..3);
        if away > 0 {
            sleep(Duration::from_millis(rng.u64(0..30))).await;
        }
        let to = (sent + TTL).min(if away > 0 { Instant::now() } else { sent + TTL });
        for lease in &leases {
            book.entry(lease.id).or_default().push(Held { from, to });
        }
        match away {
            1 => {
                let back =
                    |&lease: &Lease| Release { lease, due_in: None, uncount: 0, claimed_at: None };
                let releases: Vec<_> = leases.iter().map(back).collect();
                store.release(&releases).await.unwrap();
            }
            2 => {
                let landed = store.ack(&leases).await.unwrap();
                let gone = landed.into_iter().filter(|landed| *landed).count();
                db.send_all((0..gone).map(|n| Outgoing::new("q", &n))).await;
            }
            _ => {}
        }
    }
    book
}

async fn of_eight_clients_that_claim_at_once_no_two_hold_a_row(db: &Db) {
    for sql in AUDIT {
        db.exec(sql).await;
    }
    db.send_all((0..ROWS).map(|n| Outgoing::new("q", &n))).await;
    let (so_far, mut clients) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    let shared = Arc::new(db.named(db.names.clone()));
    for seed in 0..CLIENTS {
        // Each with connections of its own, as a process has them.
        let store = PgStore::new(db.pg(), db.names.clone());
        clients.spawn(client(store, Arc::clone(&shared), seed, Arc::clone(&so_far)));
    }
    let mut book = Book::new();
    for part in clients.join_all().await {
        part.into_iter().for_each(|(id, held)| book.entry(id).or_default().extend(held));
    }
    let claimed: usize = book.values().map(Vec::len).sum();
    for (id, mut held) in book {
        held.sort_by_key(|one| one.from);
        for pair in held.windows(2) {
            assert!(pair[0].to <= pair[1].from, "row {id} was held by two clients");
        }
    }
    let ttl = format!("interval '{} milliseconds'", TTL.as_millis());
    let early =
        format!("SELECT count(*) FROM claims WHERE before IS NOT NULL AND since + {ttl} > at");
    assert_eq!(db.int(early).await, 0, "claimed though a lease was valid");
    let all = db.int("SELECT count(*) FROM claims").await;
    let again = db.int("SELECT count(*) FROM claims WHERE before IS NOT NULL").await;
    println!("{all} rows were claimed, {again} of them from a lease that had run out");
    assert_eq!(claimed, usize::try_from(all).unwrap(), "each claim was answered");
    assert!(claimed >= ENOUGH && again >= 100, "{all} claims, {again} from others");
    assert_eq!(db.rows().await, ROWS);
}
