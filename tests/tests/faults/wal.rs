//! The server finds no room for its log: it panics, and cannot come back while that lasts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use outbox::{App, Context, FromContext, HandlerError, Outgoing, Publisher, Subscriber, Tx};
use outbox_tests::backend::require;
use outbox_tests::db::Db;
use outbox_tests::disk::{Disk, WAL};
use outbox_tests::server::Server;
use outbox_tests::wait::{PATIENCE, eventually};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};

use super::{OFTEN, SECOND};

/// How often the disk fills up, and how many messages are handled in between.
const ROUNDS: usize = 4;
const EACH: usize = 30;

/// What the test is told of the messages, each of which goes to both queues.
#[derive(Default)]
struct Told {
    /// The answer to the commit came.
    committed: BTreeSet<i64>,
    refused: usize,
    /// Of `plain`.
    handled: BTreeSet<i64>,
    /// How often a handler has begun, by its row and claim.
    starts: BTreeMap<(i64, i64), usize>,
}

type Book = Arc<Mutex<Told>>;

impl Told {
    fn starts(&mut self, run: &Context) {
        *self.starts.entry((run.id(), run.fence())).or_default() += 1;
    }
}

/// One whose writes and whose ack are one, and one that is told of only by its ack.
fn subscribers(told: &Book) -> [Subscriber; 2] {
    let (book, plain) = (Arc::clone(told), Arc::clone(told));
    let booking = move |ctx: Context| {
        book.lock().unwrap().starts(&ctx);
        async move {
            let n: i64 = ctx.decode()?;
            let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
            let insert = sqlx::query("INSERT INTO done (n) VALUES ($1)").bind(n);
            insert.execute(&mut *tx).await?;
            Ok::<(), HandlerError>(())
        }
    };
    let noting = move |ctx: Context| {
        let mut told = plain.lock().unwrap();
        told.starts(&ctx);
        let n = ctx.decode::<i64>().unwrap();
        told.handled.insert(n);
        async {}
    };
    [
        Subscriber::new("booking", "booked", booking).requires::<Tx<sqlx::Postgres>>(),
        Subscriber::new("noting", "plain", noting),
    ]
    .map(|one| {
        let one = one.retry(outbox::retry::Constant::new(OFTEN));
        one.lease_ttl(2 * SECOND).min_poll(OFTEN).max_poll(OFTEN)
    })
}

async fn publish(pool: &PgPool, n: i64) -> anyhow::Result<()> {
    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO biz (n) VALUES ($1)").bind(n).execute(&mut *tx).await?;
    let both = ["booked", "plain"].map(|queue| Outgoing::new(queue, &n));
    Publisher::default().publish_batch(&mut tx, both).await?;
    Ok(tx.commit().await?)
}

async fn produce(pool: PgPool, first: i64, told: Book, stop: Arc<AtomicBool>) {
    for n in first.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        match publish(&pool, n).await {
            Ok(()) => drop(told.lock().unwrap().committed.insert(n)),
            Err(_) => {
                told.lock().unwrap().refused += 1;
                sleep(OFTEN / 5).await;
            }
        }
    }
}

/// As whoever looks after the server does.
async fn comes_back(server: &Server) {
    let end = Instant::now() + PATIENCE;
    while PgConnection::connect(&server.url).await.is_err() {
        assert!(Instant::now() < end, "{}", server.log().unwrap());
        let _ = tokio::task::block_in_place(|| server.start_again());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_without_room_loses_nothing_and_the_app_goes_on_when_there_is_some() {
    if !require("postgres") {
        return;
    }
    let (disk, server) = Disk::with_server(&[("fsync", "off")]);
    let db = Db::of(&server).await;
    db.exec("CREATE TABLE biz (n bigint PRIMARY KEY)").await;
    db.exec("CREATE TABLE done (n bigint NOT NULL)").await;
    let pool = PgPoolOptions::new().acquire_timeout(2 * SECOND).connect_lazy(&server.url).unwrap();
    let (told, stop) = (Book::default(), Arc::new(AtomicBool::new(false)));
    let app = App::postgres(pool.clone()).names(db.names.clone()).only(subscribers(&told));
    let running = app.start().await.unwrap();
    let producers: Vec<_> = [0, 1 << 32]
        .map(|first| tokio::spawn(produce(pool.clone(), first, told.clone(), stop.clone())))
        .into();
    for round in 0..ROUNDS {
        let so_far = told.lock().unwrap().handled.len();
        eventually("the app works", async || told.lock().unwrap().handled.len() > so_far + EACH)
            .await;
        let panics = || server.log().unwrap().matches("PANIC:").count();
        let before = panics();
        disk.fill(WAL);
        eventually("the server panics", async || panics() > before).await;
        // The first time there is room before it has tried to come back.
        if round > 0 {
            let again = panics();
            eventually("it panics again", async || {
                let started = tokio::task::block_in_place(|| server.start_again());
                assert!(started.is_err(), "it starts on a full disk");
                panics() > again
            })
            .await;
        }
        disk.make_room(WAL);
        comes_back(&server).await;
    }
    let so_far = told.lock().unwrap().committed.len();
    eventually("publishers go on", async || told.lock().unwrap().committed.len() > so_far + EACH)
        .await;
    stop.store(true, Ordering::SeqCst);
    for producer in producers {
        producer.await.unwrap();
    }
    db.drained().await;
    running.ping().await.unwrap();
    running.stop().await.unwrap();

    let numbers = async |sql: &'static str| -> Vec<i64> {
        sqlx::query_scalar(sql).fetch_all(db.pg()).await.unwrap()
    };
    let written = numbers("SELECT n FROM biz ORDER BY n").await;
    let booked = numbers("SELECT n FROM done ORDER BY n").await;
    assert_eq!(db.letters().await, 0);
    db.close().await;
    let told = told.lock().unwrap();
    println!("{} committed, {} refused", written.len(), told.refused);
    assert!(told.refused > 0, "no publisher met a full disk");
    let written_set: BTreeSet<i64> = written.iter().copied().collect();
    assert!(told.committed.is_subset(&written_set), "what was acknowledged is there");
    assert_eq!(told.handled, written_set, "what was written was handled, and nothing else");
    assert_eq!(booked, written, "and booked, each once");
    let twice: Vec<_> = told.starts.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
