//! A loop that ended is noticed by pings and probes, whichever it is.

use std::time::Duration;

use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::free;
use outbox_tests::wait::{eventually, soon};

use super::{Probes, SOON};

on_both!(a_ping_is_red_when_any_loop_has_ended_and_names_it, no_loop_is_missing_from_the_list,);

const LOOPS: [&str; 7] =
    ["claims", "workers", "settlers", "leases", "wakes", "watchdog", "samples"];

async fn a_ping_is_red_when_any_loop_has_ended_and_names_it(db: &Db) {
    for name in LOOPS {
        let app = db.app().only([free("it", "q").0]).drain_timeout(Duration::from_millis(10));
        let running = app.queue_gauges(Duration::from_secs(60)).start().await.unwrap();
        let probes = Probes::of(running.health().limit(SOON)).await;
        running.ping().await.unwrap();
        assert_eq!((probes.live().await, probes.ready().await), (200, 200), "{name}");

        running.end_loop(name);
        eventually("a ping is red", async || soon("an answer", running.ping()).await.is_err())
            .await;
        let red = running.ping().await.unwrap_err().to_string();
        assert!(red.contains(&format!("the loop `{name}` has ended")), "{red}");
        let (status, body) = probes.get("/live").await;
        assert_eq!((status, &body["live"]), (503, &false.into()), "{name}");
        let (status, body) = probes.get("/ready").await;
        assert_eq!(status, 503);
        assert!(body["reasons"][0].as_str().unwrap().contains(&format!("`{name}`")), "{body}");
        drop(running);
    }
}

async fn no_loop_is_missing_from_the_list(db: &Db) {
    let app = db.app().only([free("it", "q").0]);
    let running = app.queue_gauges(Duration::from_secs(60)).start().await.unwrap();
    let report = running.health().check().await;
    let mut told: Vec<_> = report.loops.iter().map(|one| one.name).collect();
    let mut all = LOOPS;
    told.sort_unstable();
    all.sort_unstable();
    assert_eq!(told, all);
    running.stop().await.unwrap();
}
