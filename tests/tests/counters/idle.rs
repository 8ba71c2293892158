//! What an app costs that has nothing to do.

use std::time::{Duration, Instant};

use outbox::{App, Outgoing};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::free;
use outbox_tests::wire::{Counts, Wire};
use tokio::time::sleep;

use super::paused::a_paused_queue_full_of_due_rows_costs_nothing;

on_postgres!(idle_apps_cost_six_statements_a_minute_on_two_connections);

const MINUTE: Duration = Duration::from_secs(60);
/// A subscriber that finds nothing rests for longer between two looks.
const LOOKS_EVERY: Duration = Duration::from_secs(15);

/// Each has a database of its own, and all wait at the same time.
async fn idle_apps_cost_six_statements_a_minute_on_two_connections(one: &Db) {
    let (many, looking, paused) = tokio::join!(Db::postgres(), Db::postgres(), Db::postgres());
    let dbs = [many, looking, paused].map(|db| db.expect("there was one"));
    let [many, looking, paused] = &dbs;
    tokio::join!(
        idle(one, 1, |app| app),
        idle(many, 200, |app| app),
        idle(looking, 200, |app| app.queue_gauges(MINUTE)),
        a_paused_queue_full_of_due_rows_costs_nothing(paused),
    );
    for db in dbs {
        db.close().await;
    }
}

async fn idle(db: &Db, subscribers: usize, with: impl FnOnce(App) -> App) {
    let wire = Wire::of(db).await;
    let all: Vec<_> = (0..subscribers).map(|n| free("it", &format!("q{n}"))).collect();
    let handlers = all.iter().map(|(subscriber, _)| subscriber.clone());
    let running = with(super::app(db, &wire).only(handlers)).start().await.unwrap();
    wire.rests().await;
    wire.begin();
    let queue = |n| format!("q{}", n % subscribers);
    db.send_all((0..4000).map(|n| Outgoing::new(queue(n), &n))).await;
    db.drained().await;
    let loaded = wire.counts();
    let counts = six_statements_a_minute(&wire).await;
    running.stop().await.unwrap();
    println!(
        "{subscribers} idle subscribers: {} statements between two probes, {} connections",
        counts.statements(),
        counts.most
    );
    assert!(loaded.most <= 5, "{} connections", loaded.most);
    assert!(counts.most <= 2, "{} connections", counts.most);
}

/// Once a minute the listener asks for a sign of life, and all look behind it, as they do
/// three times more; one is for gauges. When each look comes, nobody can say: so those are
/// counted that come between two such probes.
pub async fn six_statements_a_minute(wire: &Wire) -> Counts {
    let probes = |counts: &Counts| counts.of("SELECT pg_notify");
    // The rests between polls grow, and connections that are not needed any more
    // are closed.
    sleep(MINUTE / 2).await;
    // It comes later than that.
    let begun = Instant::now();
    let mut since = begun;
    wire.begin();
    loop {
        let now = Instant::now();
        if probes(&wire.counts()) > 0 {
            break;
        }
        assert!(begun.elapsed() < 2 * MINUTE, "no probe");
        since = now;
        sleep(Duration::from_millis(50)).await;
    }
    // And the look behind it.
    sleep(Duration::from_secs(5)).await;
    wire.begin();
    sleep(Duration::from_secs(50)).await;
    let (counts, took) = (wire.counts(), since.elapsed());
    let times = |every: Duration| usize::try_from(took.as_millis() / every.as_millis()).unwrap();
    // None, but on a machine that stood still; and then there is a look behind each.
    let more = probes(&counts);
    let looks = times(LOOKS_EVERY) + more;
    assert!(more <= times(MINUTE), "{more} probes in {took:?}");
    assert!(counts.of("-- Leases due rows") <= looks, "{looks} in {took:?}: {:#?}", counts.sent);
    // With the probe and the look behind it that is six a minute.
    let most = looks + more + 1 + times(MINUTE);
    assert!(counts.statements() <= most, "{most} in {took:?}: {:#?}", counts.sent);
    counts
}
