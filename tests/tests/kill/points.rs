//! Where a process is killed.

use std::time::Duration;

use outbox_tests::db::Db;
use outbox_tests::wait::eventually;

use super::TRANSACTIONAL;
use super::traps::{ACKING, COMMITTING, Hold};
use super::worker::{ABORT, Worker};

#[derive(Clone, Copy, Debug)]
pub enum Point {
    /// By itself, at a step of the worker.
    Step(&'static str),
    /// While PostgreSQL executes the statement that acks, or the commit, which it
    /// then finishes: it looks for its client only when it wants to read.
    Finished(i64),
    /// As before, but its session dies too.
    Broken(i64),
    /// From outside, at any time after the first handler has begun.
    Anytime,
}

/// What must have landed by then.
#[derive(PartialEq, Eq)]
pub enum Lands {
    Nothing,
    Something,
    Anything,
}

const ACKED_BY_SQL: [Point; 4] = [
    Point::Finished(ACKING),
    Point::Broken(ACKING),
    Point::Finished(COMMITTING),
    Point::Broken(COMMITTING),
];

pub fn of(db: &Db, handler: &str) -> Vec<Point> {
    let mut points = vec!["fetched", "dispatched", "begun"];
    if handler == TRANSACTIONAL {
        points.extend(["written", "published"]);
    }
    points.extend(["returning", "returned"]);
    if !db.is_postgres() {
        points.extend(["deleted", "inserted"]);
    }
    points.push("acked");
    let mut points: Vec<_> = points.into_iter().map(Point::Step).collect();
    if db.is_postgres() {
        points.extend(ACKED_BY_SQL);
    }
    points.extend([Point::Anytime; 3]);
    points
}

impl Point {
    /// Messages that it needs to be reached for sure.
    pub fn needs(self) -> usize {
        match self {
            Self::Anytime => 40,
            _ => 8,
        }
    }

    pub fn lands(self, handler: &str) -> Lands {
        match self {
            Self::Step("fetched") | Self::Broken(_) => Lands::Nothing,
            // Without the commit, the ack in the handler's transaction is nothing.
            Self::Finished(ACKING) if handler == TRANSACTIONAL => Lands::Nothing,
            Self::Finished(_) | Self::Step("acked") => Lands::Something,
            Self::Step(_) | Self::Anytime => Lands::Anything,
        }
    }

    /// Starts a process and kills it there. Each `variant` is a bit later.
    pub async fn kill(self, db: &Db, handler: &str, variant: usize) {
        match self {
            Self::Step(step) => {
                let turn = if step == "fetched" { 1 } else { 1 + variant % 4 };
                Worker::start(db, handler, Some((step, turn))).died_of(ABORT).await;
            }
            Self::Anytime => {
                let mut worker = Worker::start(db, handler, None);
                worker.begun().await;
                // Finer than the timer of the runtime.
                std::thread::sleep(Duration::from_micros(variant as u64 * 7919 % 20_000));
                worker.kill().await;
            }
            Self::Finished(lock) | Self::Broken(lock) => {
                let hold = Hold::take(db, lock).await;
                let worker = Worker::start(db, handler, None);
                db.engine_waits().await;
                worker.kill().await;
                if matches!(self, Self::Broken(_)) {
                    db.exec(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                         WHERE datname = current_database() AND application_name = 'engine'",
                    )
                    .await;
                    gone(db).await;
                }
                hold.release().await;
            }
        }
        gone(db).await;
    }
}

/// PostgreSQL may still work on what a dead client has sent.
async fn gone(db: &Db) {
    if db.is_postgres() {
        eventually("its sessions end", async || db.connections().await == 0).await;
    }
}
