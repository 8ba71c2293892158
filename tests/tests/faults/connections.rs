//! A server that has no connection left.

use outbox::Outgoing;
use outbox_tests::backend::{require, unique};
use outbox_tests::capture;
use outbox_tests::db::Db;
use outbox_tests::probe::free;
use outbox_tests::server::Server;
use outbox_tests::wait::eventually;
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};

use super::{OFTEN, SECOND, drain, publish};

/// Tries to connect in a second: two for each of the six loops, whatever pools do by
/// themselves.
const MOST: u128 = 2 * 6;

/// Few, and none kept for whoever owns the server, who is who connects here.
const FEW: [(&str, &str); 3] =
    [("fsync", "off"), ("max_connections", "12"), ("superuser_reserved_connections", "0")];

/// A server of which the test has what it needs.
async fn few() -> Option<(Server, Db)> {
    if !require("postgres") {
        return None;
    }
    let server = Server::start(&FEW).unwrap();
    let db = Db::of(&server).await;
    db.open_all().await;
    Some((server, db))
}

/// Takes connections until there is none left, and again when one comes free.
async fn take_all(server: &Server, taken: &mut Vec<PgConnection>) {
    while let Ok(one) = PgConnection::connect(&server.url).await {
        taken.push(one);
    }
}

/// The engine has none any more.
async fn starve(db: &Db, server: &Server, taken: &mut Vec<PgConnection>) {
    take_all(server, taken).await;
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE application_name = 'engine'";
    eventually("the engine has no connection", async || {
        db.int(kill).await;
        // A place is free a moment after its session has gone.
        sleep(OFTEN).await;
        take_all(server, taken).await;
        db.connections().await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_without_connections_waits_for_some_and_goes_on() {
    capture::start();
    let Some((server, db)) = few().await else { return };
    let queue = unique("starved");
    let (subscriber, probe) = free("it", &queue);
    let app = db.app().only([subscriber.min_poll(OFTEN).max_poll(OFTEN)]);
    let running = app.start().await.unwrap();
    publish(&db, &queue, [1]).await;
    assert_eq!(probe.start().await.n, 1);
    let mut taken = Vec::new();
    starve(&db, &server, &mut taken).await;
    publish(&db, &queue, 2..22).await;
    let log = server.folder.join("log");
    let refused = || std::fs::read_to_string(&log).unwrap().matches("too many clients").count();
    let (begun, before) = (Instant::now(), refused());
    sleep(3 * SECOND).await;
    eventually("it tries to connect", async || refused() > before).await;
    let (tries, took) = (refused() - before, begun.elapsed());
    println!("{tries} tries to connect in {took:?}");
    let most = usize::try_from(MOST * took.as_millis() / 1000).unwrap();
    assert!(tries <= most, "{tries} tries to connect in {took:?}");
    drop(taken);
    let runs = probe.starts(20).await;
    // Each once. In which order handlers begin that run side by side nobody promises.
    let mut runs: Vec<_> = runs.iter().map(|run| run.n).collect();
    runs.sort_unstable();
    assert_eq!(runs, (2..22).collect::<Vec<_>>());
    db.drained().await;
    running.stop().await.unwrap();
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_subscribers_share_what_connections_there_are() {
    let Some((server, db)) = few().await else { return };
    let mut taken = Vec::new();
    let all: Vec<_> = (0..40).map(|n| free("it", &format!("q{n}"))).collect();
    let subscribers = all.iter().map(|(subscriber, _)| subscriber.clone());
    let running = db.app().only(subscribers).start().await.unwrap();
    // One to listen, and one for everything else.
    starve(&db, &server, &mut taken).await;
    taken.truncate(taken.len() - 2);
    eventually("it has two", async || db.connections().await == 2).await;
    let begun = Instant::now();
    for round in 0..5 {
        db.send_all((0..400).map(|n| Outgoing::new(format!("q{}", n % 40), &round))).await;
    }
    db.drained().await;
    let handled: usize = all.iter().map(|(_, probe)| probe.finished()).sum();
    assert_eq!(handled, 2000);
    running.stop().await.unwrap();
    assert!(begun.elapsed() < 25 * SECOND, "as if each waited for a new one");
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_without_connections_ends_in_time() {
    let Some((server, db)) = few().await else { return };
    let mut taken = Vec::new();
    let begin = async || starve(&db, &server, &mut taken).await;
    let stopped = drain::Stopped::in_trouble(&db, db.app(), begin).await;
    drop(taken);
    stopped.comes_back_on(&db).await;
    db.close().await;
}
