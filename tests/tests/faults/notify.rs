//! A session that listens and never ends its transaction fills the server's queue of
//! notifications: from then on every commit that notifies fails.

use std::fs::{Permissions, create_dir, remove_dir_all, set_permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use outbox::retry::NoRetry;
use outbox::{Context, FromContext, HandlerError, Outgoing, Publisher, Subscriber, Tx};
use outbox_tests::backend::{require, unique};
use outbox_tests::db::Db;
use outbox_tests::probe::free;
use outbox_tests::server::Server;
use outbox_tests::wait::eventually;
use sqlx::{Connection, Executor, PgConnection};
use tokio::time::{Instant, sleep};

use super::{OFTEN, drain};

/// 8 GiB in the server's folder, until it is full.
const FILL: [&str; 2] = [
    "CREATE PROCEDURE fill() LANGUAGE plpgsql AS $$
     DECLARE pad text := repeat('x', 7980);
     BEGIN
         FOR chunk IN 1..2000 LOOP
             PERFORM pg_notify('held', (chunk * 1000 + n) || pad) FROM generate_series(1, 1000) n;
             COMMIT;
         END LOOP;
     END $$",
    "CALL fill()",
];

/// In KiB: what is filled, and half as much for the servers of all other tests.
const ROOM: u64 = 12 << 20;

/// The server's queue on the disk, where its folder has less room; removed when dropped.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn of(server: &Server) -> Option<Self> {
        let mut df = Command::new("df");
        let told = df.args(["--output=avail", "-k"]).arg(&server.folder).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let free: u64 = told.lines().last().unwrap().trim().parse().unwrap();
        if free >= ROOM {
            return None;
        }
        let folder = std::env::temp_dir().join(unique("outbox-notify"));
        create_dir(&folder).unwrap();
        set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        server.kill().unwrap();
        let queue = server.folder.join("data/pg_notify");
        remove_dir_all(&queue).unwrap();
        symlink(&folder, queue).unwrap();
        server.start_again().unwrap();
        Some(Self(folder))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = remove_dir_all(&self.0);
    }
}

/// Writes a number and publishes it; false if the commit was refused for the queue.
async fn produce(db: &Db, n: i64) -> bool {
    let mut tx = db.pg().begin().await.unwrap();
    sqlx::query("INSERT INTO biz (n) VALUES ($1)").bind(n).execute(&mut *tx).await.unwrap();
    Publisher::default().publish_batch(&mut tx, [Outgoing::new("q", &n)]).await.unwrap();
    match tx.commit().await {
        Ok(()) => true,
        Err(refused) => {
            let text = refused.to_string();
            assert!(text.contains("too many notifications in the NOTIFY queue"), "{text}");
            false
        }
    }
}

/// Publishes with its ack, and never tries twice.
fn relay() -> Subscriber {
    Subscriber::new("relay", "relay", |ctx: Context| async move {
        ctx.publisher().collect(Outgoing::new("q", &-1))
    })
    .retry(NoRetry)
}

fn relay_in_transaction() -> Subscriber {
    Subscriber::new("in_transaction", "in tx", |ctx: Context| async move {
        let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
        outbox::publish(&mut tx, "q", &-1).await?;
        Ok::<_, HandlerError>(())
    })
    .requires::<Tx<sqlx::Postgres>>()
    .retry(NoRetry)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_notify_queue_loses_nothing_and_publishing_goes_on_unnotified() {
    if !require("postgres") {
        return;
    }
    let server = Server::start(&[("fsync", "off")]).unwrap();
    // The server is dropped first.
    let (_elsewhere, server) = (Elsewhere::of(&server), server);
    let db = Db::of(&server).await;
    db.exec("CREATE TABLE biz (n bigint)").await;
    let (subscriber, probe) = free("it", "q");
    let often = Duration::from_secs(1);
    let all = [subscriber, relay(), relay_in_transaction()];
    let all = all.map(|one| one.min_poll(often).max_poll(often));
    let running = db.app().only(all).start().await.unwrap();
    let mut holder = PgConnection::connect(&server.url).await.unwrap();
    for sql in ["LISTEN held", "BEGIN", "SELECT 1"] {
        holder.execute(sql).await.unwrap();
    }
    let mut filler = PgConnection::connect(&server.url).await.unwrap();
    filler.execute(FILL[0]).await.unwrap();
    let full = filler.execute(FILL[1]).await.unwrap_err().to_string();
    assert!(full.contains("too many notifications"), "{full}");

    // Until the app finds that its own notifications do not come, a publish is refused
    // while it sleeps: with the row that belongs to it. Then nobody is notified.
    let (begun, mut refused) = (Instant::now(), 0);
    let mut n = 0;
    loop {
        n += 1;
        if produce(&db, n).await {
            break;
        }
        refused += 1;
        // Of which nobody is notified: their handlers publish.
        db.exec("INSERT INTO outbox (queue, payload) VALUES ('relay', '1'), ('in tx', '1')").await;
        assert!(begun.elapsed() < Duration::from_secs(120), "{refused} were refused");
        sleep(OFTEN).await;
    }
    println!("{refused} publishes were refused in {:?}", begun.elapsed());
    assert!(refused > 0, "none met the full queue");
    for _ in 0..50 {
        n += 1;
        produce(&db, n).await;
        sleep(OFTEN / 10).await;
    }
    eventually("polling finds them", async || db.rows().await == 0).await;
    let mut seen: Vec<i64> = probe.more().await.iter().map(|run| run.n).collect();
    let relayed = seen.iter().filter(|n| **n < 0).count();
    assert_eq!((relayed, db.letters().await), (2 * refused, 0), "no failure of theirs");
    seen.retain(|n| *n > 0);
    seen.sort_unstable();
    let written = db.texts("SELECT n::text FROM biz ORDER BY biz.n").await;
    let written: Vec<i64> = written.iter().map(|n| n.parse().unwrap()).collect();
    assert_eq!(seen, written, "what was written was handled, and nothing else");
    assert!(written.len() >= 20, "{written:?}");
    drain::in_trouble(&db, db.app(), async || (), async || ()).await;

    // Wakes may be minutes in coming again; messages need none.
    holder.close().await.unwrap();
    assert!(produce(&db, n + 1).await);
    assert_eq!(probe.start().await.n, n + 1);
    running.stop().await.unwrap();
    db.close().await;
}
