//! Pauses while there is much to do.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::{Context, Outgoing, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::wait::eventually;
use tokio::time::Instant;

use super::operator;

on_both!(
    once_a_queue_is_paused_under_load_no_claim_takes_its_rows,
    a_busy_subscriber_finds_the_rows_of_a_resumed_queue_within_a_second,
);

/// Runs of handlers, by queue.
#[derive(Clone, Default)]
struct Tally(Arc<Mutex<HashMap<String, usize>>>);

impl Tally {
    fn of(&self, queue: &str) -> usize {
        self.0.lock().unwrap().get(queue).copied().unwrap_or(0)
    }

    /// A subscriber of two queues.
    fn subscriber(&self) -> Subscriber {
        let tally = self.clone();
        Subscriber::new("it", ["busy", "other"], move |context: Context| {
            *tally.0.lock().unwrap().entry(context.queue().to_owned()).or_default() += 1;
            async {}
        })
    }

    /// Publishes to a queue for ever, no further ahead than a few thousand rows.
    async fn feed(&self, db: &Db, queue: &str) {
        for n in 1_usize.. {
            db.send_all((0..200).map(|n| Outgoing::new(queue, &n))).await;
            let behind = (200 * n).saturating_sub(3000);
            eventually("the handlers keep up", async || self.of(queue) >= behind).await;
        }
    }

    async fn reached(&self, queue: &str, runs: usize) {
        eventually("handlers run", async || self.of(queue) >= runs).await;
    }
}

/// Writes down every claim, in the transaction of the claim.
async fn audited(db: &Db) {
    db.exec("CREATE TABLE claims (queue varchar(255))").await;
    if db.is_postgres() {
        db.exec(
            "CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO claims VALUES (NEW.queue); RETURN NULL; END $$",
        )
        .await;
        db.exec(
            "CREATE TRIGGER note_claim AFTER UPDATE ON outbox FOR EACH ROW
             WHEN (NEW.acquired_token IS DISTINCT FROM OLD.acquired_token
                   AND NEW.acquired_token IS NOT NULL)
             EXECUTE FUNCTION note_claim()",
        )
        .await;
    } else {
        db.exec(
            "CREATE TRIGGER note_claim AFTER UPDATE OF acquired_token ON outbox
             WHEN NEW.acquired_token IS NOT NULL
             BEGIN INSERT INTO claims VALUES (NEW.queue); END",
        )
        .await;
    }
}

async fn claims(db: &Db, queue: &str) -> i64 {
    db.int(format!("SELECT count(*) FROM claims WHERE queue = '{queue}'")).await
}

/// A pause waits for them no longer than a second.
async fn claims_under_way_have_ended(db: &Db) {
    if !db.is_postgres() {
        return;
    }
    let now = db.texts("SELECT clock_timestamp()::text").await.remove(0);
    let older = format!(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND xact_start < '{now}'"
    );
    eventually("they have ended", async || db.int(older.clone()).await == 0).await;
}

async fn while_fed<T>(tally: &Tally, db: &Db, work: impl Future<Output = T>) -> T {
    tokio::select! {
        done = work => done,
        () = tally.feed(db, "busy") => unreachable!("it has no end"),
        () = tally.feed(db, "other") => unreachable!("it has no end"),
    }
}

async fn once_a_queue_is_paused_under_load_no_claim_takes_its_rows(db: &Db) {
    audited(db).await;
    let (tally, operator) = (Tally::default(), operator(db));
    let running = db.app().only([tally.subscriber()]).start().await.unwrap();
    let pausing = async {
        for round in 1..=5 {
            let (busy, other) = (tally.of("busy"), tally.of("other"));
            tally.reached("busy", busy + 1000).await;
            tally.reached("other", other + 500).await;
            operator.pause(&["busy"], None).await.unwrap();
            claims_under_way_have_ended(db).await;
            let taken = claims(db, "busy").await;
            let other = tally.of("other");
            tally.reached("other", other + 500).await;
            assert_eq!(claims(db, "busy").await, taken, "in round {round}");
            operator.resume(&["busy"]).await.unwrap();
        }
    };
    while_fed(&tally, db, pausing).await;
    assert!(claims(db, "busy").await > 5000);
    running.stop().await.unwrap();
}

/// Its claims begin far behind the rows of the paused queue.
async fn a_busy_subscriber_finds_the_rows_of_a_resumed_queue_within_a_second(db: &Db) {
    let (tally, operator) = (Tally::default(), operator(db));
    let hour = Duration::from_secs(3600);
    let subscriber = tally.subscriber().min_poll(hour).max_poll(hour);
    let running = db.app().only([subscriber]).start().await.unwrap();
    let resuming = async {
        let mut took = Vec::new();
        for round in 0..5 {
            operator.pause(&["other"], None).await.unwrap();
            for n in 0..5 {
                db.publish("other", n).await;
            }
            tally.reached("busy", tally.of("busy") + 3000).await;
            assert_eq!(tally.of("other"), 5 * round);
            // Which may itself have to wait until it can write.
            operator.resume(&["other"]).await.unwrap();
            let resumed = Instant::now();
            tally.reached("other", 5 * (round + 1)).await;
            took.push(resumed.elapsed());
        }
        took.sort_unstable();
        took
    };
    let took = tokio::select! {
        took = resuming => took,
        () = tally.feed(db, "busy") => unreachable!("it has no end"),
    };
    // Of the five the machine may have slept in two.
    assert!(took[2] < Duration::from_secs(1), "after {took:?}");
    running.stop().await.unwrap();
}
