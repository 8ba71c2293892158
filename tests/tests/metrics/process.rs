//! What is told of the process as a whole, by metrics without a label: in a test's own
//! exporter, or the other tests would count there too.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::PrometheusHandle;
use outbox::telemetry::Event;
use outbox::{Outgoing, Publisher};
use outbox_tests::db::{Db, Pool};
use outbox_tests::on_both;
use outbox_tests::probe::gated;
use outbox_tests::wait::{PATIENCE, eventually};

use super::{EXPORTER, builder, scrape};
use crate::sums::Sums;

on_both!(one thread: whether_wakes_arrive_is_told);

/// Has what is counted on the thread of a test.
struct Own {
    exporter: PrometheusHandle,
    _set: LocalRecorderGuard<'static>,
}

impl Own {
    fn set() -> Self {
        let recorder = Box::leak(Box::new(builder().build_recorder()));
        Self { exporter: recorder.handle(), _set: metrics::set_default_local_recorder(recorder) }
    }

    fn alone(&self, name: &str) -> Option<f64> {
        Sums::read(&self.exporter.render()).alone(name)
    }
}

async fn whether_wakes_arrive_is_told(db: &Db) {
    let own = Own::set();
    let is = |value: f64| own.alone("outbox_listener_up") == Some(value);
    let running = db.app().only([gated("it", "q").0]).start().await.unwrap();
    eventually("they arrive", async || is(1.0)).await;
    if db.is_postgres() {
        db.open_all().await;
        db.allow_connections(false).await;
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'engine'";
        assert!(db.int(end).await > 0);
        eventually("none arrives", async || is(0.0)).await;
        db.allow_connections(true).await;
        eventually("they arrive again", async || is(1.0)).await;
    }
    running.stop().await.unwrap();
    assert!(is(0.0), "nobody listens any more");
}

/// Each is an event, and none needs the database.
async fn refuse(db: &Db, publisher: &Publisher, times: u64) {
    let Pool::Sqlite(pool) = &db.pool else { return };
    let mut tx = pool.begin().await.unwrap();
    for _ in 0..times {
        let nameless = Outgoing::new("q", &1).timer_id("");
        publisher.send(&mut tx, nameless).await.unwrap_err();
    }
}

#[tokio::test]
async fn each_event_that_a_recorder_is_too_slow_for_is_counted() {
    /// As the page of `Recorder` has it.
    const WAITING: u64 = 16_384;
    let db = Db::sqlite().await.unwrap();
    let own = Own::set();
    let ((takes, taken), (release, gate)) = (channel(), channel::<()>());
    let gate = Mutex::new(gate);
    let blocks = move |_: &Event| {
        let _ = takes.send(());
        let _ = gate.lock().unwrap().recv();
    };
    let app = db.app().recorder(blocks);
    let (stats, publisher) = (app.stats(), app.publisher());
    refuse(&db, &publisher, 1).await;
    taken.recv_timeout(PATIENCE).expect("it takes the first");
    refuse(&db, &publisher, WAITING).await;
    assert_eq!((stats.recorder_dropped(), own.alone("outbox_recorder_dropped_total")), (0, None));
    refuse(&db, &publisher, 7).await;
    let dropped = own.alone("outbox_recorder_dropped_total");
    assert_eq!((stats.recorder_dropped(), dropped), (7, Some(7.0)));
    drop(release);
    db.close().await;
}

/// On its own thread, which counts for all: no other test here has a recorder that panics.
#[tokio::test]
async fn each_event_at_which_a_recorder_panics_is_counted() {
    std::sync::LazyLock::force(&EXPORTER);
    let db = Db::sqlite().await.unwrap();
    let app = db.app().recorder(|_: &Event| panic!("a recorder of the test panics"));
    let (stats, publisher) = (app.stats(), app.publisher());
    refuse(&db, &publisher, 3).await;
    eventually("each is counted", async || stats.recorder_panics() == 3).await;
    let told = || scrape().alone("outbox_recorder_panics_total");
    eventually("and told", async || told() == Some(3.0)).await;
    db.close().await;
}
