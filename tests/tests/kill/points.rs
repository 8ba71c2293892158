//! Where a process is killed.

use std::time::{Duration, Instant};

use outbox_tests::db::{Db, Pool};
use outbox_tests::wait::eventually;

use super::traps::{Hold, Stage};
use super::worker::{self, ABORT};
use super::{BATCH, REJECTING, RETURNING};

#[derive(Clone, Copy, Debug)]
pub enum Point {
    /// By itself, at a step of the worker.
    Step(&'static str),
    /// Inside a statement or commit, which PostgreSQL then finishes: it looks for its
    /// client only when it wants to read.
    Finished(Stage),
    /// As before, but its session dies too.
    Broken(Stage),
    /// From outside, at any time after the first handler has begun.
    Anytime,
}

/// How long the server takes to look for the client of a lent transaction, less a little. It counts
/// from the begin of the first one in that session: what looks then is not set anew for the next one.
/// Here it lets any statement wait for a lock for longer than that.
const UNNOTICED: Duration = Duration::from_millis(1500);
/// How old the youngest session is that waits, in ms; far too old if there is none any more.
const WAITED: &str = "SELECT coalesce(
        min(extract(epoch FROM clock_timestamp() - backend_start)) * 1000, 3600000)::bigint
    FROM pg_stat_activity WHERE datname = current_database()
    AND application_name = 'engine' AND wait_event_type = 'Lock'";

/// What must have landed by then.
pub enum Lands {
    Nothing,
    Something,
    Anything,
}

pub fn of(db: &Db, handler: &str) -> Vec<Point> {
    let mut steps = vec!["fetched", "dispatched", "begun", "returning", "returned"];
    steps.extend(match handler {
        REJECTING => &["rejected"][..],
        RETURNING => &["acked"],
        _ => &["acked", "written", "published"],
    });
    let mut points = Vec::new();
    if db.is_postgres() {
        let bury = (handler == REJECTING).then_some(Stage::Burying);
        for stage in [Stage::Claiming, Stage::Acking, Stage::Committing].into_iter().chain(bury) {
            points.extend([Point::Finished(stage), Point::Broken(stage)]);
        }
    } else {
        steps.extend(["taken", "deleted"]);
        if handler == REJECTING {
            // The letter is written and the row not deleted: more often than elsewhere.
            steps.extend(["buried"; 4]);
        } else {
            steps.push("inserted");
        }
    }
    points.extend(steps.into_iter().map(Point::Step));
    points.extend([Point::Anytime; 3]);
    points
}

impl Point {
    /// Messages that it needs to be reached for sure.
    pub fn needs(self, handler: &str) -> usize {
        match self {
            Self::Anytime => 100,
            // Four runs, and ten messages that do not fail at first.
            _ if handler == BATCH => 16,
            _ => 8,
        }
    }

    pub fn lands(self, handler: &str) -> Lands {
        match self {
            Self::Step("fetched") | Self::Finished(Stage::Claiming) | Self::Broken(_) => {
                Lands::Nothing
            }
            // Without the commit, the ack in the handler's transaction is nothing.
            Self::Finished(Stage::Acking) if !matches!(handler, RETURNING | REJECTING) => {
                Lands::Nothing
            }
            Self::Finished(_) | Self::Step("acked" | "rejected") => Lands::Something,
            Self::Step(_) | Self::Anytime => Lands::Anything,
        }
    }

    /// Starts a process and kills it there. How late differs with the round, and at
    /// which turn with the cycle through all points. False if that took so long that the
    /// server may have ended by itself what it should finish.
    pub async fn kill(self, db: &Db, handler: &str, round: usize, cycle: usize) -> bool {
        left_alone(db).await;
        let mut since = None;
        match self {
            Self::Step(step) => {
                let turn = match step {
                    "fetched" => 1,
                    "begun" | "returning" => 1 + cycle % 4,
                    // Those of each message: also in the middle of later runs.
                    _ if handler == BATCH => 1 + 3 * (cycle % 4),
                    _ => 1 + cycle % 4,
                };
                worker::start(db, handler, Some((step, turn))).died_of(ABORT).await;
            }
            Self::Anytime => {
                let mut worker = worker::start(db, handler, None);
                worker.begun().await;
                // Finer than the timer of the runtime.
                std::thread::sleep(Duration::from_micros(round as u64 * 7919 % 30_000));
                worker.kill().await;
            }
            Self::Finished(stage) | Self::Broken(stage) => {
                let hold = Hold::take(db, stage).await;
                let worker = worker::start(db, handler, None);
                db.engine_waits().await;
                worker.kill().await;
                if matches!(self, Self::Broken(_)) {
                    db.exec(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                         WHERE datname = current_database() AND application_name = 'engine'",
                    )
                    .await;
                    gone(db).await;
                    hold.release().await;
                } else {
                    let (asked, waited) = (Instant::now(), db.int(WAITED).await);
                    since = Some((asked, Duration::from_millis(waited.unsigned_abs())));
                    hold.release().await;
                }
            }
        }
        gone(db).await;
        // Who is let go may get no processor for a while.
        since.is_none_or(|(asked, waited)| waited + asked.elapsed() < UNNOTICED)
    }
}

/// Nobody but the worker shall have the file of SQLite open, so that whoever opens
/// it next has to recover it.
async fn left_alone(db: &Db) {
    let Pool::Sqlite(pool) = &db.pool else { return };
    eventually("the file is closed", async || {
        while let Some(connection) = pool.try_acquire() {
            connection.close().await.unwrap();
        }
        pool.size() == 0
    })
    .await;
}

/// PostgreSQL may still work on what a dead client has sent.
async fn gone(db: &Db) {
    if db.is_postgres() {
        eventually("its sessions end", async || db.connections().await == 0).await;
    }
}
