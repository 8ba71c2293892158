//! Exporters that panic: they keep no message from its ack.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, set_default_local_recorder,
};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::free;

on_both!(one thread:
    an_exporter_that_panics_when_it_counts_hurts_no_message,
    an_exporter_that_panics_when_it_makes_a_counter_hurts_no_message,
);

const ROWS: i64 = 20;

/// How often it has panicked.
#[derive(Default)]
struct Panics(AtomicU64);

impl Panics {
    fn panic(&self) -> ! {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("an exporter of the test panics");
    }
}

impl CounterFn for Panics {
    /// By nothing is how a subscriber's counter is made known: of one that panics then it has none.
    fn increment(&self, by: u64) {
        if by > 0 {
            self.panic()
        }
    }

    fn absolute(&self, _: u64) {
        self.panic()
    }
}

impl GaugeFn for Panics {
    fn increment(&self, _: f64) {
        self.panic()
    }

    fn decrement(&self, _: f64) {
        self.panic()
    }

    fn set(&self, _: f64) {
        self.panic()
    }
}

impl HistogramFn for Panics {
    fn record(&self, _: f64) {
        self.panic()
    }
}

struct Exporter {
    panics: Arc<Panics>,
    /// Already when a counter, a gauge or a histogram is made.
    early: bool,
}

impl Exporter {
    fn made<T: From<Arc<Panics>>>(&self) -> T {
        if self.early {
            self.panics.panic();
        }
        Arc::clone(&self.panics).into()
    }
}

impl Recorder for Exporter {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.made()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.made()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.made()
    }
}

/// The least number of panics at which every message is acked all the same.
async fn hurts_no_message(db: &Db, queue: &str, early: bool, least: u64) {
    let panics = Arc::new(Panics::default());
    let exporter = Exporter { panics: Arc::clone(&panics), early };
    let _set = set_default_local_recorder(&exporter);
    let app = db.app().only([free("it", queue).0]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    // One by one: what is counted of several at once panics once.
    for n in 0..ROWS {
        db.publish(queue, n).await;
        db.drained().await;
    }
    running.ping().await.unwrap();
    running.stop().await.unwrap();
    let counts = stats.subscribers().remove(0);
    assert_eq!((counts.dispatched, counts.acked), (20, 20));
    let panics = panics.0.load(Ordering::Relaxed);
    assert!(panics >= least, "it panicked {panics} times, and not {least}");
}

/// Three times for each message: as it is published, starts and is acked.
async fn an_exporter_that_panics_when_it_counts_hurts_no_message(db: &Db) {
    hurts_no_message(db, "panics when it counts", false, 60).await;
}

/// Then a subscriber has no counters that could panic again; publishing looks for them each time.
async fn an_exporter_that_panics_when_it_makes_a_counter_hurts_no_message(db: &Db) {
    hurts_no_message(db, "panics when it makes one", true, 20).await;
}
