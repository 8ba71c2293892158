//! Flows that are a call of the caller's.

use outbox::dlq::{Filter, Replay};
use outbox::ops::Operator;
use outbox::{App, BoxError, Outgoing};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::{eventually, soon};
use sqlx::Executor;
use sqlx::postgres::PgConnectOptions;

use super::fault::{Counts, Fault, LONG_LEASE};
use super::run::{Flow, Played, sweep};
use super::stage::Stage;
use super::what::What;
use super::work::{Work, Worker};

macro_rules! swept {
    ($($test:ident: $call:ident,)*) => {
        on_postgres!($($test),*);
        $(async fn $test(db: &Db) {
            sweep(db, Call::$call, stringify!($call)).await;
        })*

        const ALL: &[Call] = &[$(Call::$call),*];
    };
}

swept! {
    a_publish_survives_a_fault_at_any_message: Publish,
    a_batch_survives_a_fault_at_any_message: PublishBatch,
    a_timer_survives_a_fault_at_any_message: Timer,
    a_cancel_survives_a_fault_at_any_message: Cancel,
    an_operators_publish_survives_a_fault_at_any_message: OperatorsPublish,
    a_replay_survives_a_fault_at_any_message: Replay,
    a_purge_survives_a_fault_at_any_message: Purge,
    a_pause_survives_a_fault_at_any_message: Pause,
    a_migration_survives_a_fault_at_any_message: Migrate,
    a_start_survives_a_fault_at_any_message: Start,
}

/// Cases of all of them, at least.
pub fn floor() -> usize {
    ALL.iter().map(|call| call.cases()).sum()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// On a pool that is still to connect.
    Publish,
    PublishBatch,
    Timer,
    Cancel,
    OperatorsPublish,
    Replay,
    Purge,
    Pause,
    Migrate,
    Start,
}

impl Flow for Call {
    const LEASED: bool = false;

    fn floor(self) -> Counts {
        let (sent, answered) = match self {
            // BEGIN, two statements, COMMIT.
            Self::Publish => (16, 8),
            Self::PublishBatch => (23, 9),
            Self::Replay => (19, 10),
            Self::Purge => (40, 22),
            Self::Pause => (16, 7),
            Self::Migrate => (66, 27),
            Self::Start => (71, 26),
            Self::Timer | Self::Cancel | Self::OperatorsPublish => (11, 5),
        };
        Counts { sent, answered }
    }

    async fn play(self, database: PgConnectOptions, fault: Option<Fault>) -> Played {
        let stage = match self {
            Self::Migrate => Stage::bare(&database).await,
            _ => Stage::set(&database).await,
        };
        self.prepare(&stage).await;
        if self != Self::Publish {
            stage.pool.execute("SELECT 1").await.unwrap();
            rests(&stage).await;
        }
        stage.proxy.arm(What::All, fault);
        let ended = soon("the call ends", self.call(&stage, 1)).await;
        rests(&stage).await;
        stage.proxy.disarm();
        let counts = stage.proxy.counts();
        let struck = stage.proxy.has_struck();
        if fault.is_none_or(|fault| !fault.kind.cuts()) {
            ended.as_ref().expect("who waits long enough gets an answer");
        }
        stage.is_outside_transactions().await;
        let (effect, whole) = (self.effect(&stage).await, self.whole());
        assert!(effect == whole || effect == 0 && ended.is_err(), "{effect} of {whole}, {ended:?}");
        // The same pool goes on, and says what it did.
        soon("the next call ends", self.call(&stage, 2)).await.expect("the next call");
        let total = self.effect(&stage).await;
        assert_eq!(total, if self.adds() { effect + whole } else { whole });
        stage.is_outside_transactions().await;
        if self != Self::Migrate {
            // Those that a timer's cancel and an operator's purge delete had no lease.
            let wrong = stage.violations(LONG_LEASE, false).await;
            assert!(wrong.is_empty(), "{wrong:#?}");
        }
        stage.strike().await;
        Played { counts, again: false, struck, is_early: false }
    }
}

/// What a call leaves to be done is done.
async fn rests(stage: &Stage) {
    let pool = &stage.pool;
    eventually("the pool rests", async || pool.num_idle() == pool.size() as usize).await;
}

impl Call {
    async fn prepare(self, stage: &Stage) {
        match self {
            Self::Cancel => {
                let timer = Outgoing::new("q", &1).timer_id("t").delay(LONG_LEASE);
                stage.send(1, timer).await;
            }
            Self::Replay | Self::Purge => {
                stage.publish(1..=3).await;
                let status = if self == Self::Purge { "resolved" } else { "failed" };
                stage.exec(include_str!("bury_all.sql").replace("{status}", status)).await;
            }
            _ => {}
        }
    }

    async fn call(self, stage: &Stage, n: i64) -> Result<(), BoxError> {
        let operator = Operator::postgres(stage.pool.clone(), stage.names.clone());
        match self {
            Self::Publish => {
                let mut tx = stage.pool.begin().await?;
                sqlx::query("INSERT INTO biz VALUES ($1)").bind(n).execute(&mut *tx).await?;
                stage.publisher.publish(&mut tx, "q", &n).await?;
                tx.commit().await?;
            }
            Self::PublishBatch => {
                let (mut tx, numbers) = (stage.pool.begin().await?, 10 * n..10 * n + 3);
                for n in numbers.clone() {
                    sqlx::query("INSERT INTO biz VALUES ($1)").bind(n).execute(&mut *tx).await?;
                }
                let messages = numbers.map(|n| Outgoing::new("q", &n));
                stage.publisher.publish_batch(&mut tx, messages).await?;
                tx.commit().await?;
            }
            Self::Timer => {
                let mut tx = stage.pool.begin().await?;
                let timer = Outgoing::new("timers", &1).timer_id("t").delay(LONG_LEASE);
                stage.publisher.send(&mut tx, timer).await?;
                tx.commit().await?;
            }
            Self::Cancel => {
                let mut tx = stage.pool.begin().await?;
                stage.publisher.cancel_timer(&mut tx, "q", "t").await?;
                tx.commit().await?;
            }
            Self::OperatorsPublish => {
                operator.publish(Outgoing::new("operators", &n)).await?;
            }
            Self::Replay => {
                operator.dead_letters().replay(&Filter::new(), &Replay::new()).await?;
            }
            Self::Purge => {
                operator.dead_letters().purge(&Filter::new()).await?;
            }
            Self::Pause => {
                operator.pause(&["q"], Some("swept")).await?;
            }
            Self::Migrate => {
                outbox::schema::migrate_tables(&stage.pool, &stage.names).await?;
                // Only whole tables can be.
                outbox::schema::validate_schema(&stage.direct, &stage.names, true).await?;
            }
            Self::Start => {
                let worker = Worker::of(Work::Ack, stage, LONG_LEASE);
                let app = App::postgres(stage.pool.clone()).names(stage.names.clone());
                let running = app.only([worker.subscriber()]).start().await?;
                // What comes later is not the start's.
                stage.proxy.disarm();
                stage.publish([n]).await;
                eventually("it works", async || worker.notes.runs_of(n) > 0).await;
                running.stop().await?;
            }
        }
        Ok(())
    }

    /// What it did, counted.
    async fn effect(self, stage: &Stage) -> i64 {
        let sql = match self {
            Self::Publish | Self::PublishBatch | Self::Replay => {
                "SELECT count(*) FROM outbox WHERE queue = 'q'"
            }
            Self::Timer => "SELECT count(*) FROM outbox WHERE queue = 'timers'",
            Self::OperatorsPublish => "SELECT count(*) FROM outbox WHERE queue = 'operators'",
            Self::Cancel => "SELECT 1 - count(*) FROM outbox",
            Self::Purge => "SELECT 3 - count(*) FROM outbox_dlq",
            Self::Pause => "SELECT count(*) FROM outbox_paused",
            Self::Migrate => {
                "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()
                 AND tablename IN ('outbox', 'outbox_dlq', 'outbox_paused')"
            }
            Self::Start => "SELECT count(*) FROM audit WHERE op = 'delete'",
        };
        stage.int(sql).await
    }

    /// All of it.
    fn whole(self) -> i64 {
        match self {
            Self::PublishBatch | Self::Replay | Self::Purge | Self::Migrate => 3,
            _ => 1,
        }
    }

    /// Whether a second call does it once more.
    fn adds(self) -> bool {
        matches!(self, Self::Publish | Self::PublishBatch | Self::OperatorsPublish | Self::Start)
    }
}
