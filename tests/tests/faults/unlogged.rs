//! A log that takes no line, as on a full disk: `fmt` panics where it can write neither the line nor
//! why it could not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::retry::Constant;
use outbox::{Context, Outcome, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::wait::eventually;
use tracing::field::{Field, Visit};
use tracing::subscriber::set_default;
use tracing_subscriber::layer::{self, Layer, SubscriberExt as _};

on_both!(one thread: a_log_that_panics_at_each_line_ends_no_loop);

/// Panics at each line of the library, and counts.
#[derive(Clone, Default)]
struct Full(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Full {
    fn on_event(&self, event: &tracing::Event<'_>, _: layer::Context<'_, S>) {
        /// Reads the line, as whoever writes it does.
        struct Read;
        impl Visit for Read {
            fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
                let _ = format!("{value:?}");
            }
        }
        if event.metadata().target().starts_with("outbox") {
            event.record(&mut Read);
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("no space left for a line");
        }
    }
}

/// Rows that are retried, dead-lettered, put off and acked, each with a line; and claims that fail.
async fn a_log_that_panics_at_each_line_ends_no_loop(db: &Db) {
    let full = Full::default();
    let _full = set_default(tracing_subscriber::registry().with(full.clone()));
    let subscriber = Subscriber::new("it", "q", |ctx: Context| async move {
        match (ctx.payload(), ctx.attempts()) {
            (b"1", _) => Err("for good"),
            (_, 0) => Err("once"),
            _ => Ok(Outcome::Ack),
        }
    });
    let retry = Constant::new(Duration::from_millis(1)).max_attempts(2);
    let app = db.app().only([subscriber.retry(retry).min_poll(Duration::from_millis(20))]);
    let running = app.log_errors(true).start().await.unwrap();
    for round in 1..=2 {
        for n in 1..=40 {
            db.publish("q", n).await;
        }
        eventually("all are settled", async || db.rows().await == 0).await;
        assert_eq!(db.letters().await, round);
        if round == 1 {
            db.exec("ALTER TABLE outbox RENAME TO away").await;
            let lines = full.0.load(Ordering::SeqCst);
            eventually("a claim fails", async || full.0.load(Ordering::SeqCst) > lines).await;
            db.exec("ALTER TABLE away RENAME TO outbox").await;
        }
    }
    running.ping().await.unwrap();
    running.stop().await.unwrap();
    assert!(full.0.load(Ordering::SeqCst) > 80);
}
