//! The server's clock is stepped by an hour while an app runs; that of a process, which is
//! the clock of its SQLite file, is off by an hour.

use std::path::Path;
use std::time::Duration;

use outbox::Outgoing;
use outbox_tests::backend::skip;
use outbox_tests::clock::{Clock, off_by};
use outbox_tests::db::Db;
use outbox_tests::probe::{free, gated};
use outbox_tests::server::Server;
use outbox_tests::wait::{PATIENCE, eventually};
use outbox_tests::worker::Worker;
use tokio::process::Command;

use super::{HOUR, OFTEN, SECOND, drain, publish};

/// `None` without libfaketime. The clock outlives the server.
async fn stepped() -> Option<(Db, Server, Clock)> {
    if !outbox_tests::backend::require("postgres") {
        return None;
    }
    let (clock, server) = Clock::with_server(&[("fsync", "off")])?;
    Some((Db::of(&server).await, server, clock))
}

async fn leased_at(db: &Db) -> i64 {
    db.int("SELECT extract(epoch FROM max(acquired_at))::bigint FROM outbox").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_forward_makes_delayed_messages_due_and_loses_none() {
    let Some((db, _server, clock)) = stepped().await else { return };
    let (subscriber, probe) = gated("it", "q");
    let subscriber = subscriber.min_poll(OFTEN).max_poll(OFTEN);
    let (later, fires) = free("later", "later");
    let running =
        db.app().only([subscriber, later.min_poll(OFTEN).max_poll(OFTEN)]).start().await.unwrap();
    publish(&db, "q", 0..3).await;
    probe.starts(3).await;
    db.send(Outgoing::new("later", &7).delay(HOUR / 2)).await;
    db.send(Outgoing::new("later", &8).delay(2 * HOUR)).await;
    clock.set(3600);
    assert_eq!(fires.start().await.n, 7);
    assert!(fires.more().await.is_empty(), "another hour is to come");
    // By the server's clock their leases are long over: who claims them owns them.
    probe.let_end(1000);
    eventually("the others are settled", async || db.rows().await == 1).await;
    assert!((3..=6).contains(&(3 + probe.more().await.len())), "each runs at most once more");
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_back_takes_no_lease_away_and_what_comes_then_is_handled() {
    let Some((db, _server, clock)) = stepped().await else { return };
    let (subscriber, probe) = gated("it", "q");
    let ttl = 15 * SECOND;
    let subscriber = subscriber.lease_ttl(ttl).min_poll(OFTEN).max_poll(OFTEN);
    let (others, handled) = free("others", "others");
    let others = others.min_poll(OFTEN).max_poll(OFTEN);
    let running = db.app().only([subscriber, others]).start().await.unwrap();
    publish(&db, "q", [1]).await;
    let run = probe.start().await;
    let before = leased_at(&db).await;
    clock.set(-3600);
    eventually("its lease is one of the new time", async || leased_at(&db).await < before - 3000)
        .await;
    // Past the end of the lease that it began with.
    let long = run.lease_deadline + ttl;
    eventually("it goes on", async || run.context.lease_deadline() > long).await;
    publish(&db, "others", 0..20).await;
    handled.starts(20).await;
    assert!(!run.context.cancelled().is_cancelled() && probe.more().await.is_empty());
    probe.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!((probe.finished(), db.letters().await), (1, 0));
    db.close().await;
}

/// Due times are the server's: what it noted down an hour ahead of itself comes when it
/// gets there. It is late, and neither lost nor asked for in a spin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_when_the_clock_went_back_comes_at_its_time() {
    let Some((db, _server, clock)) = stepped().await else { return };
    publish(&db, "q", 0..5).await;
    clock.set(-3600);
    let (subscriber, probe) = free("it", "q");
    let subscriber = subscriber.min_poll(OFTEN).max_poll(OFTEN);
    let running = db.app().only([subscriber]).start().await.unwrap();
    publish(&db, "q", [7]).await;
    assert_eq!(probe.start().await.n, 7, "what is due now does not wait behind it");
    let claims = async || db.int("SELECT sum(xact_commit)::bigint FROM pg_stat_database").await;
    let (so_far, watched) = (claims().await, Duration::from_secs(3));
    tokio::time::sleep(watched).await;
    let more = claims().await - so_far;
    assert!(more < 200, "{more} transactions in {watched:?}");
    eventually("only the others are left", async || db.rows().await == 5).await;
    clock.set(0);
    let mut runs: Vec<_> = probe.starts(5).await.iter().map(|run| run.n).collect();
    runs.sort_unstable();
    assert_eq!(runs, [0, 1, 2, 3, 4]);
    db.drained().await;
    running.stop().await.unwrap();
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_while_the_clock_jumps_ends_in_time() {
    let Some((db, _server, clock)) = stepped().await else { return };
    drain::in_trouble(&db, db.app(), async || clock.set(3600), async || ()).await;
    drain::in_trouble(&db, db.app(), async || clock.set(-3600), async || clock.set(3600)).await;
    db.close().await;
}

/// A process of which only the clock is wrong, by so many seconds.
fn worker(db: &Db, job: &str, seconds: i64) -> Worker {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faulty"));
    command.args([&db.url, job]).envs(off_by(seconds).into_iter().flatten());
    Worker::spawn(command)
}

/// `None` without libfaketime. Six rows are due, three in half an hour, three in two.
async fn with_rows_that_wait() -> Option<Db> {
    if off_by(0).is_none() {
        skip("faketime", "libfaketime is not installed");
        return None;
    }
    let db = Db::sqlite().await?;
    db.exec("CREATE TABLE published (n INTEGER PRIMARY KEY, due INTEGER NOT NULL)").await;
    db.exec("CREATE TABLE handled (n INTEGER NOT NULL, at INTEGER NOT NULL)").await;
    for n in 0..12 {
        let delay = [Duration::ZERO, Duration::ZERO, HOUR / 2, 2 * HOUR][n / 3];
        let now = "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";
        let due = format!("{now} + {}", delay.as_millis());
        db.exec(format!("INSERT INTO published VALUES ({n}, {due})")).await;
        db.send(Outgoing::new("timed", &n).delay(delay)).await;
    }
    Some(db)
}

async fn handled(db: &Db, which: &str) -> i64 {
    db.int(format!("SELECT count(*) FROM handled JOIN published USING (n) WHERE {which}")).await
}

/// What it published itself is handled at once, and so many of the others. The rest is
/// handled when it is due by the clock of whoever is there.
async fn a_worker_off_by(db: Db, seconds: i64, others: i64) {
    let off = worker(&db, "timed producer", seconds);
    eventually("its own are handled", async || handled(&db, "n >= 100").await == 30).await;
    let late = format!("n >= 100 AND at > due + {}", PATIENCE.as_millis());
    assert_eq!(handled(&db, &late).await, 0);
    eventually("so many others", async || handled(&db, "n < 100").await == others).await;
    assert_eq!(db.rows().await, 12 - others);
    off.stop().await;
    let last = worker(&db, "timed", 4 * 3600);
    db.drained().await;
    last.stop().await;
    assert_eq!(handled(&db, "at < due").await, 0, "handled before it was due");
    let all = "SELECT count(*) FROM handled";
    assert_eq!((db.int(all).await, handled(&db, "true").await, db.letters().await), (42, 42, 0));
    assert_eq!(db.int("SELECT count(DISTINCT n) FROM handled").await, 42);
    db.close().await;
}

/// Not promised: that it is in time for others. What they publish it handles an hour late,
/// and takes over an hour late if they die. Nor that they leave its leases alone: to them
/// these have run out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_an_hour_behind_on_a_file_handles_its_own_at_once_and_loses_none() {
    let Some(db) = with_rows_that_wait().await else { return };
    a_worker_off_by(db, -3600, 0).await;
}

/// Not promised: that others need not wait an hour for what it publishes, or for what it
/// held when it died. Nor that it leaves their leases alone: to it they have run out, so it
/// runs at once what they run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_an_hour_ahead_on_a_file_handles_what_is_due_to_it_and_loses_none() {
    let Some(db) = with_rows_that_wait().await else { return };
    a_worker_off_by(db, 3600, 9).await;
}

/// How many lines of its log have this in them.
fn told(log: &Path, what: &str) -> usize {
    std::fs::read_to_string(log).unwrap().lines().filter(|line| line.contains(what)).count()
}

/// It runs what another one runs, and both end well: of two acks of a row one lands, and the
/// other is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_ahead_takes_the_rows_of_another_on_a_file_and_one_of_them_acks_each() {
    if off_by(0).is_none() {
        return skip("faketime", "libfaketime is not installed");
    }
    let Some(db) = Db::sqlite().await else { return };
    db.exec("CREATE TABLE runs (n INTEGER NOT NULL, process INTEGER NOT NULL)").await;
    db.send_all((0..10).map(|n| Outgoing::new("shared", &n))).await;
    let file = Path::new(db.url.strip_prefix("sqlite:").unwrap());
    let logged = |seconds: i64, log: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_faulty"));
        command.args([&db.url, "shared"]).envs(off_by(seconds).into_iter().flatten());
        command.env("RUST_LOG", "outbox=debug").stderr(std::fs::File::create(log).unwrap());
        Worker::spawn(command)
    };
    let logs = ["right", "ahead"].map(|name| file.with_extension(name));
    let right = logged(0, &logs[0]);
    let runs = "SELECT count(*) FROM runs";
    eventually("all run", async || db.int(runs).await == 10).await;
    let ahead = logged(3600, &logs[1]);
    db.drained().await;
    let lost = "event=\"lease_lost\"";
    eventually("one has lost them", async || told(&logs[0], lost) == 10).await;
    right.stop().await;
    ahead.stop().await;
    let acked = logs.each_ref().map(|log| told(log, "event=\"acked\""));
    let refused = logs.each_ref().map(|log| told(log, "unknown=false"));
    assert_eq!((acked, refused), ([0, 10], [10, 0]));
    let twice = "SELECT count(*) FROM (SELECT n FROM runs GROUP BY n
        HAVING count(*) = 2 AND count(DISTINCT process) = 2)";
    assert_eq!((db.int(runs).await, db.int(twice).await), (20, 10));
    assert_eq!((db.rows().await, db.letters().await), (0, 0));
    assert_eq!(db.texts("PRAGMA integrity_check").await, ["ok"]);
    db.close().await;
}
