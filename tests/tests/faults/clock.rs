//! The server's clock is stepped by an hour while an app runs.

use std::time::Duration;

use outbox::Outgoing;
use outbox_tests::clock::Clock;
use outbox_tests::db::Db;
use outbox_tests::probe::{free, gated};
use outbox_tests::server::Server;
use outbox_tests::wait::eventually;

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
    let ttl = 2 * SECOND;
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
    // Several leases long.
    let long = run.lease_deadline + 3 * ttl;
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
    assert_eq!(db.rows().await, 5);
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
