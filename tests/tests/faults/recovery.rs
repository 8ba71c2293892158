//! A server that crashes, is stopped or is killed under load: three seconds after it is
//! back, so is the app.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::{App, Context, RunningApp, Subscriber};
use outbox_tests::backend::require;
use outbox_tests::db::Db;
use outbox_tests::proxy::Proxy;
use outbox_tests::server::Server;
use outbox_tests::wait::eventually;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use super::SECOND;

/// Handlers that take this long, and so many of them: what they do in a second does not
/// depend on what else the machine does.
const TAKES: Duration = Duration::from_millis(50);
const WORKERS: usize = 10;
/// Few, so that nothing is left to do of what was claimed before.
const BATCH: usize = 20;
const ROWS: usize = 20_000;
/// Of the rate before.
const KEPT: f64 = 0.5;
/// A second, before.
const ENOUGH: f64 = 50.0;
/// A second is short: the machine may do something else in it, or the others that are beside.
/// An app that is late is so each time.
const TRIES: usize = 3;

/// How the server goes down, and for how long it stays away.
enum Fault {
    /// All sessions end with it, and the server restarts them by itself.
    Backend,
    /// Whoever connects is refused.
    Stop(Duration),
    /// Whoever connects finds the connection closed, as behind a balancer.
    Postmaster(Duration),
}

struct Loaded {
    server: Arc<Server>,
    db: Db,
    running: RunningApp,
    ended: Arc<AtomicUsize>,
}

impl Loaded {
    async fn start(fault: &Fault) -> Self {
        let server = spawn_blocking(|| Server::start(&[("fsync", "off")])).await;
        let server = Arc::new(server.unwrap().unwrap());
        let db = Db::of(&server).await;
        db.exec(format!(
            "INSERT INTO outbox (queue, payload) SELECT 'steady', '7' FROM generate_series(1, {ROWS})"
        ))
        .await;
        let ended = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ended);
        let steady = Subscriber::new("steady", "steady", move |_: Context| {
            let counted = Arc::clone(&counted);
            async move {
                sleep(TAKES).await;
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let app = match fault {
            Fault::Postmaster(_) => {
                let proxy = Proxy::before(&db).await;
                let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(&db));
                App::postgres(pool).names(db.names.clone())
            }
            _ => db.app(),
        };
        let app = app.only([steady.max_workers(WORKERS).fetch_batch(BATCH)]);
        let running = app.start().await.unwrap();
        Self { server, db, running, ended }
    }

    /// What is done in that time, a second: handlers that end, or rows that go, whichever
    /// are fewer.
    async fn rate(&self, time: Duration) -> f64 {
        let (ended, rows) = (self.ended.load(Ordering::SeqCst), self.db.rows().await);
        let begun = Instant::now();
        sleep(time).await;
        let gone = usize::try_from(rows - self.db.rows().await).unwrap();
        let done = gone.min(self.ended.load(Ordering::SeqCst) - ended);
        done as f64 / begun.elapsed().as_secs_f64()
    }

    /// Returns when it answers again.
    async fn strike(&self, fault: &Fault) {
        let mut seen = PgConnection::connect(&self.server.url).await.unwrap();
        match fault {
            Fault::Backend => {
                let one = "SELECT pid::bigint FROM pg_stat_activity
                    WHERE application_name = 'engine' LIMIT 1";
                kill(&self.db.int(one).await.to_string());
                // The server has noticed when other sessions end as well.
                eventually("it ends", async || seen.ping().await.is_err()).await;
            }
            Fault::Stop(away) => {
                self.server.kill().unwrap();
                sleep(*away).await;
                self.server.start_again().unwrap();
            }
            Fault::Postmaster(away) => {
                let pid = self.server.folder.join("data").join("postmaster.pid");
                kill(first_line(&pid).trim());
                sleep(*away).await;
                let server = Arc::clone(&self.server);
                // What is left of it may still be there for a moment.
                let again = move || (0..50).any(|_| server.start_again().is_ok());
                assert!(spawn_blocking(again).await.unwrap(), "it does not start");
            }
        }
        let answers = async || PgConnection::connect(&self.server.url).await.is_ok();
        eventually("it answers", answers).await;
    }
}

fn kill(pid: &str) {
    let status = Command::new("/bin/sh").args(["-c", &format!("kill -KILL {pid}")]).status();
    assert!(status.unwrap().success());
}

fn first_line(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap().lines().next().unwrap().to_owned()
}

/// The rates before and three seconds after the server is back.
async fn rates(fault: &Fault) -> (f64, f64) {
    let loaded = Loaded::start(fault).await;
    sleep(SECOND).await;
    let before = loaded.rate(2 * SECOND).await;
    loaded.strike(fault).await;
    sleep_until(Instant::now() + 3 * SECOND).await;
    let after = loaded.rate(SECOND).await;
    let Loaded { server, db, running, .. } = loaded;
    running.stop().await.unwrap();
    db.close().await;
    drop(server);
    (before, after)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_is_back_at_work_three_seconds_after_its_server() {
    if !require("postgres") {
        return;
    }
    let faults = [Fault::Backend, Fault::Stop(6 * SECOND), Fault::Postmaster(7 * SECOND)];
    let [crash, stop, kill] = &faults;
    // Side by side: most of it is waiting.
    let (crash, stop, kill) = tokio::join!(rates(crash), rates(stop), rates(kill));
    for (fault, (what, found)) in
        faults.iter().zip([("crash", crash), ("stop", stop), ("kill", kill)])
    {
        let (mut before, mut after) = found;
        for _ in 1..TRIES {
            println!("{what}: {before:.0} a second before it, {after:.0} after it");
            if before >= ENOUGH && after >= KEPT * before {
                break;
            }
            (before, after) = rates(fault).await;
        }
        assert!(before >= ENOUGH, "{what}: {before:.0} a second to begin with");
        assert!(after >= KEPT * before, "{what}: {after:.0} a second, and {before:.0} before");
    }
}
