//! Whatever somebody publishes, the caller's transaction goes on: what is refused is
//! refused before the first statement. Arguments at random, by a fixed seed.

use std::time::{Duration, SystemTime};

use fastrand::Rng;
use outbox::{Outgoing, PublishError, Publisher, TimerConflict};
use outbox_tests::db::{Db, Pool};
use outbox_tests::hostile::names;
use outbox_tests::on_both;
use serde_json::{Value, json};

on_both!(no_argument_breaks_the_callers_transaction);

const ROUNDS: usize = 1000;

struct Dice {
    rng: Rng,
    names: Vec<String>,
}

impl Dice {
    fn one_in(&mut self, n: usize) -> bool {
        self.rng.usize(..n) == 0
    }

    fn name(&mut self) -> String {
        match self.rng.usize(..3) {
            0 => ["q", "r", "s"][self.rng.usize(..3)].to_owned(),
            _ => self.names[self.rng.usize(..self.names.len())].clone(),
        }
    }

    fn time(&mut self) -> SystemTime {
        let distance = Duration::from_secs(self.rng.u64(..) >> self.rng.u32(24..64));
        let from = SystemTime::UNIX_EPOCH;
        let time =
            if self.rng.bool() { from.checked_add(distance) } else { from.checked_sub(distance) };
        time.unwrap_or(from)
    }

    fn duration(&mut self) -> Duration {
        match self.rng.usize(..3) {
            0 => Duration::MAX,
            1 => Duration::from_nanos(self.rng.u64(..)),
            _ => Duration::from_secs(self.rng.u64(..) >> self.rng.u32(..64)),
        }
    }

    fn value(&mut self) -> Value {
        match self.rng.usize(..9) {
            0 => Value::Null,
            1 => json!(self.rng.i64(..)),
            2 => json!(f64::from_bits(self.rng.u64(..))),
            3 => json!([1e308, -0.0, u64::MAX, i64::MIN, true]),
            4 => (0..self.rng.usize(..400)).fold(json!("deep"), |inner, _| json!([inner])),
            5 => (0..self.rng.usize(..400)).fold(json!({}), |inner, _| json!({ "a": inner })),
            6 => Value::String("x".repeat(self.rng.usize(..10_000))),
            7 => json!({ self.name(): self.name() }),
            _ => Value::String(self.name()),
        }
    }

    fn message(&mut self) -> Outgoing {
        let queue = self.name();
        let mut message = match self.rng.usize(..3) {
            0 => Outgoing::raw(queue, vec![self.rng.u8(..); self.rng.usize(..20_000)]),
            1 => Outgoing::new(queue, &std::path::Path::new("\u{0}")),
            _ => Outgoing::new(queue, &self.value()),
        };
        for _ in 0..self.rng.usize(..4) {
            let name = match self.rng.usize(..8) {
                0 => "content-type".to_owned(),
                1 => "correlation_id".to_owned(),
                2 => "outbox-expires-in".to_owned(),
                3 => "traceparent".to_owned(),
                _ => self.name(),
            };
            message = message.header(name, self.value());
        }
        if self.one_in(4) {
            message = message.content_type(self.name());
        }
        if self.one_in(4) {
            message = message.correlation_id(self.name());
        }
        if self.one_in(4) {
            message = message.delay(self.duration());
        }
        if self.one_in(6) {
            message = message.at(self.time());
        }
        if self.one_in(4) {
            message = message.expires_in(self.duration());
        }
        if self.one_in(3) {
            message = message.timer_id(self.name());
        }
        if self.one_in(5) {
            message = message.on_conflict(TimerConflict::Extend);
        }
        message
    }
}

/// One call in a transaction, which has to go on, and to commit.
macro_rules! round {
    ($tx:expr, $publisher:expr, $dice:expr) => {{
        let mut tx = $tx;
        let done: Result<(), PublishError> = match $dice.rng.usize(..4) {
            0 => {
                let batch: Vec<_> = (0..$dice.rng.usize(..8)).map(|_| $dice.message()).collect();
                $publisher.publish_batch(&mut tx, batch).await.map(drop)
            }
            1 => $publisher.cancel_timer(&mut tx, $dice.name(), &$dice.name()).await.map(drop),
            _ => $publisher.send(&mut tx, $dice.message()).await.map(drop),
        };
        let goes_on = sqlx::query("SELECT 1").execute(&mut *tx).await;
        assert!(goes_on.is_ok(), "after {done:?}: {goes_on:?}");
        tx.commit().await.unwrap();
        done
    }};
}

async fn no_argument_breaks_the_callers_transaction(db: &Db) {
    let mut dice = Dice { rng: Rng::with_seed(2_511_222), names: names() };
    // Every publish notifies, which is one more way to fail.
    let publisher = Publisher::new(db.names.clone().always_notify());
    let (mut taken, mut refused) = (0, std::collections::BTreeMap::new());
    for _ in 0..ROUNDS {
        let done = match &db.pool {
            Pool::Postgres(pool) => round!(pool.begin().await.unwrap(), publisher, dice),
            Pool::Sqlite(pool) => {
                round!(outbox::sqlite::begin(pool).await.unwrap(), publisher, dice)
            }
        };
        match done {
            Ok(()) => taken += 1,
            Err(PublishError::Store(error)) => panic!("the database refused it: {error}"),
            Err(error) => {
                let text = error.to_string();
                let kind = text.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
                *refused.entry(kind).or_insert(0) += 1;
            }
        }
    }
    // Both happen often, and for many reasons, or nothing was tried.
    assert!(taken > ROUNDS / 5, "{taken} of {ROUNDS}");
    assert!(refused.len() >= 6 && refused.values().sum::<usize>() > ROUNDS / 5, "{refused:?}");
}

/// Larger ones would be refused by PostgreSQL, in the middle of the transaction.
#[tokio::test]
async fn headers_that_are_too_large_or_too_deep_are_refused() {
    let Some(db) = Db::postgres().await else { return };
    let publisher = Publisher::new(db.names.clone());
    let mut tx = db.pg().begin().await.unwrap();
    let header = |value: Value| Outgoing::new("q", &1).header("a", value);
    let large = publisher.send(&mut tx, header("x".repeat(300 << 20).into())).await;
    assert!(matches!(large, Err(PublishError::HeadersTooLarge { .. })), "{large:?}");
    let nested = |depth| header((0..depth).fold(json!(1), |inner, _| json!([inner])));
    let deep = publisher.send(&mut tx, nested(101)).await;
    assert!(matches!(deep, Err(PublishError::HeaderTooDeep { max: 100 })), "{deep:?}");
    publisher.send(&mut tx, nested(100)).await.unwrap();
    publisher.send(&mut tx, header("x".repeat(15 << 20).into())).await.unwrap();
    tx.commit().await.unwrap();
    // What was taken can be read.
    let taken = publisher.pending(&mut *db.pg().acquire().await.unwrap(), "q", 10).await.unwrap();
    assert_eq!(taken.len(), 2);
    for row in taken {
        assert!(row.headers().unwrap().value("a").is_some());
    }
    db.close().await;
}
