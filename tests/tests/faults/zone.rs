//! Summer time begins and ends while an app runs: what waits an hour and a half waits neither
//! half an hour nor two and a half.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use outbox::retry::Constant;
use outbox::{Context, HandlerError, Outcome, Outgoing, Publisher, Subscriber};
use outbox_tests::backend::require;
use outbox_tests::clock::{Clock, ahead};
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::worker::Worker;
use sqlx::Executor;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::process::Command;
use tokio::time::sleep;

use super::{OFTEN, SECOND};

const ZONE: &str = "Europe/Berlin";
/// When clocks there are put forward, and back: the last Sundays of March and October 2030.
const SWITCHES: [i64; 2] = [1_901_149_200, 1_919_293_200];
/// All is published half an hour before a switch, and due an hour after it. By the clock on
/// the wall of who counted with that, both are other times: no hour of it is left out.
const BEGIN: i64 = -1800;
const WAIT: Duration = Duration::from_secs(5400);
const DUE: i64 = 3600;
const MINUTE: i64 = 60;

/// A pool whose sessions are in that zone, whatever sqlx asks for.
async fn in_zone(db: &Db) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(2).after_connect(|connection, _| {
        Box::pin(async move { connection.execute("SET TIME ZONE 'Europe/Berlin'").await.map(drop) })
    });
    pool.connect_lazy_with((*db.pg().connect_options()).clone())
}

/// Numbers by which the handler knows what to do.
const FAILS: i64 = 10;
const SNOOZES: i64 = 11;
const PUBLISHES: i64 = 12;
const PUBLISHED: i64 = 13;
/// What is to be handled at last.
const ALL: std::ops::RangeInclusive<i64> = 1..=13;

#[derive(Clone, Default)]
struct Handled(Arc<Mutex<(BTreeSet<i64>, BTreeSet<i64>)>>);

impl Handled {
    /// Only of its second delivery is it told, if it is one that comes twice.
    fn subscriber(&self) -> Subscriber {
        let handled = self.clone();
        let handler = move |context: Context| {
            let handled = handled.clone();
            async move {
                let n: i64 = context.decode()?;
                let (first, done) = &mut *handled.0.lock().unwrap();
                if [FAILS, SNOOZES].contains(&n) && first.insert(n) {
                    return match n {
                        FAILS => Err(HandlerError::new("First", "at first")),
                        _ => Ok(Outcome::Snooze(WAIT)),
                    };
                }
                if n == PUBLISHES {
                    let later = Outgoing::new("q", &PUBLISHED).delay(WAIT);
                    context.publisher().collect(later)?;
                }
                assert!(done.insert(n), "{n} is handled twice");
                Ok(Outcome::Ack)
            }
        };
        let subscriber = Subscriber::new("it", "q", handler).retry(Constant::new(WAIT));
        subscriber.min_poll(OFTEN).max_poll(OFTEN)
    }

    fn done(&self) -> Vec<i64> {
        self.0.lock().unwrap().1.iter().copied().collect()
    }
}

/// Everything that can wait, from sessions in the zone.
async fn publish(pool: &PgPool, switch: i64) {
    let publisher = Publisher::default();
    let mut tx = pool.begin().await.unwrap();
    for n in 1..=2 {
        let later = Outgoing::new("q", &n).delay(WAIT);
        let later = if n == 2 { later.timer_id("two") } else { later };
        publisher.send(&mut tx, later).await.unwrap();
    }
    let due = SystemTime::UNIX_EPOCH + Duration::from_secs((switch + DUE).unsigned_abs());
    publisher.send(&mut tx, Outgoing::new("q", &3).at(due)).await.unwrap();
    let some = |numbers: std::ops::RangeInclusive<i64>| {
        numbers.map(|n| Outgoing::new("q", &n).delay(WAIT)).collect::<Vec<_>>()
    };
    publisher.publish_batch(&mut tx, some(4..=6)).await.unwrap();
    // Statements of batches with timers, and of those for several queues, are others.
    let mut mixed = some(7..=9);
    mixed[2] = Outgoing::new("q", &9).delay(WAIT).timer_id("nine");
    mixed.push(Outgoing::new("nobody's", &0).delay(WAIT));
    publisher.publish_batch(&mut tx, mixed).await.unwrap();
    let now = [FAILS, SNOOZES, PUBLISHES].map(|n| Outgoing::new("q", &n));
    publisher.publish_batch(&mut tx, now).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_across_the_switch_of_a_servers_zone_is_neither_early_nor_late() {
    if !require("postgres") {
        return;
    }
    let settings = [("fsync", "off"), ("timezone", ZONE)];
    let Some((clock, server)) = Clock::with_server(&settings) else { return };
    let db = Db::of(&server).await;
    let pool = in_zone(&db).await;
    for switch in SWITCHES {
        let offset = "SELECT extract(timezone FROM to_timestamp($1))::bigint";
        let offset = async |second: i64| -> i64 {
            sqlx::query_scalar(offset).bind(second as f64).fetch_one(&pool).await.unwrap()
        };
        let put = (offset(switch).await - offset(switch - 1).await).abs();
        assert_eq!(put, 3600, "the session is in the zone, and that is its switch");
        let handled = Handled::default();
        clock.set(ahead(switch + BEGIN));
        let running = db.app().only([handled.subscriber()]).start().await.unwrap();
        publish(&pool, switch).await;
        // One of them is handled, and nobody reads the queue of another.
        let waits = "SELECT count(*) FROM outbox WHERE next_attempt_at > clock_timestamp()";
        eventually("all of them wait", async || db.int(waits).await == ALL.count() as i64).await;
        let off = format!(
            "SELECT max(abs(extract(epoch FROM next_attempt_at) - {}))::bigint FROM outbox",
            switch + DUE
        );
        let off = db.int(off).await;
        assert!(off < MINUTE, "one is due {off} s from when it should be");
        clock.set(ahead(switch + DUE - MINUTE));
        sleep(SECOND).await;
        assert_eq!(handled.done(), [PUBLISHES], "the others are still to come");
        clock.set(ahead(switch + DUE + MINUTE));
        eventually("all are handled", async || handled.done() == ALL.collect::<Vec<_>>()).await;
        eventually("and acked", async || db.rows().await == 1).await;
        running.stop().await.unwrap();
        assert_eq!(db.letters().await, 0);
        db.exec("DELETE FROM outbox").await;
    }
    pool.close().await;
    db.close().await;
}

/// On a file the process has the clock, and is in the zone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_across_the_switch_of_a_process_on_a_file_is_neither_early_nor_late() {
    for switch in SWITCHES {
        let Some((clock, variables)) = Clock::with_variables() else { return };
        let db = Db::sqlite().await.unwrap();
        db.exec("CREATE TABLE published (n INTEGER PRIMARY KEY, due INTEGER NOT NULL)").await;
        db.exec("CREATE TABLE handled (n INTEGER NOT NULL, at INTEGER NOT NULL)").await;
        clock.set(ahead(switch + BEGIN));
        let mut command = Command::new(env!("CARGO_BIN_EXE_faulty"));
        command.args([&db.url, "later producer"]).envs(variables).env("TZ", ZONE);
        let worker = Worker::spawn(command);
        let handled = async || db.int("SELECT count(*) FROM handled").await;
        eventually("what is due is handled", async || handled().await == 25).await;
        eventually("five wait", async || db.rows().await == 5).await;
        clock.set(ahead(switch + DUE - MINUTE));
        sleep(SECOND).await;
        assert_eq!(handled().await, 25, "the others are still to come");
        clock.set(ahead(switch + DUE + MINUTE));
        db.drained().await;
        worker.stop().await;
        let off = "SELECT count(*) FROM handled JOIN published USING (n)
            WHERE at < due OR at > due + 120000";
        assert_eq!((db.int(off).await, handled().await, db.letters().await), (0, 30, 0));
        db.close().await;
    }
}
