//! What callers and operators call.

use std::pin::Pin;
use std::time::SystemTime;

use outbox::dlq::{Filter, Replay};
use outbox::ops::{Load, PeekOptions, SampleOptions, WhyOptions};
use outbox::{BoxError, Context, FromContext, HandlerError, Outgoing, Queue, Subscriber, Tx};
use outbox_tests::db::{Db, Pool};
use outbox_tests::wait::soon;
use outbox_tests::{on_both, on_postgres};

use super::ground::{Before, Ground};
use super::{MOST, polled, swept_on};

on_both!(one thread: a_call_may_be_dropped_at_any_point);
on_postgres!(one thread: a_call_that_makes_months_may_be_dropped_at_any_point);
outbox_tests::cases!(sqlite in sqlite_only: a_call_that_opens_a_file_may_be_dropped_at_any_point);

type Ran<'a> = Pin<Box<dyn Future<Output = Result<(), BoxError>> + 'a>>;

/// A call, what there has to be before, and what it does: all of it or nothing.
struct Call {
    name: &'static str,
    before: Before,
    run: for<'a> fn(&'a Ground<'_>) -> Ran<'a>,
    /// A count, and what it comes to.
    effect: (&'static str, i64),
}

const NONE: (&str, i64) = ("SELECT CAST(0 AS bigint)", 0);
const ROW: (&str, i64) = ("SELECT count(*) FROM outbox", 1);
const ROWS: (&str, i64) = ("SELECT count(*) FROM outbox", 3);
const NO_ROW: (&str, i64) = ("SELECT 1 - count(*) FROM outbox", 1);
const PAUSED: (&str, i64) = ("SELECT count(*) FROM outbox_paused", 1);
const RESUMED: (&str, i64) = ("SELECT 1 - count(*) FROM outbox_paused", 1);
const DEALT_WITH: (&str, i64) = ("SELECT count(*) FROM outbox_dlq WHERE status <> 'failed'", 1);
const PURGED: (&str, i64) = ("SELECT 1 - count(*) FROM outbox_dlq", 1);

macro_rules! calls {
    ($($name:literal, $before:ident, $effect:expr, |$ground:ident| $run:expr;)*) => {
        [$(Call {
            name: $name,
            before: Before::$before,
            effect: $effect,
            run: |$ground| Box::pin(async move {
                $run;
                Ok(())
            }),
        }),*]
    };
}

/// In a transaction of the caller's. It begins on a task of its own, and so does not stay
/// open when the call is dropped, which is the caller's business.
macro_rules! in_tx {
    ($ground:ident, $tx:ident => $run:expr) => {
        match &$ground.pool {
            Pool::Postgres(pool) => {
                let pool = pool.clone();
                let mut $tx = tokio::spawn(async move { pool.begin().await }).await??;
                $run;
                $tx.commit().await?;
            }
            Pool::Sqlite(pool) => {
                let pool = pool.clone();
                let begin = async move { outbox::sqlite::begin(&pool).await };
                let mut $tx = tokio::spawn(begin).await??;
                $run;
                $tx.commit().await?;
            }
        }
    };
}

macro_rules! on_pool {
    ($ground:ident, $pool:ident => $run:expr) => {
        match &$ground.pool {
            Pool::Postgres($pool) => $run,
            Pool::Sqlite($pool) => $run,
        }
    };
}

const QUEUE: Queue<i64> = Queue::new("q");

fn three() -> [Outgoing; 3] {
    [1, 2, 3].map(|n| Outgoing::new("q", &n))
}

fn publishing() -> Vec<Call> {
    calls! {
        "publish/mod.rs publish", Nothing, ROW,
            |it| in_tx!(it, tx => outbox::publish(&mut tx, "q", &1).await?);
        "publish/queue.rs publish", Nothing, ROW,
            |it| in_tx!(it, tx => QUEUE.publish(&mut tx, &1).await?);
        "publish/outgoing.rs publish", Nothing, ROW,
            |it| in_tx!(it, tx => Outgoing::new("q", &1).publish(&mut tx).await?);
        "publish/publisher.rs publish", Nothing, ROW,
            |it| in_tx!(it, tx => it.publisher.publish(&mut tx, "q", &1).await?);
        "publish/publisher.rs send", Nothing, ROW,
            |it| in_tx!(it, tx => it.publisher.send(&mut tx, Outgoing::new("q", &1)).await?);
        "publish/publisher.rs publish_batch", Nothing, ROWS,
            |it| in_tx!(it, tx => it.publisher.publish_batch(&mut tx, three()).await?);
        "publish/publisher.rs cancel_timer", Timer, NO_ROW,
            |it| in_tx!(it, tx => it.publisher.cancel_timer(&mut tx, "q", "t").await?);
        "publish/publisher.rs pending", Message, NONE,
            |it| in_tx!(it, tx => it.publisher.pending(&mut *tx, "q", 10).await?);
        "tracking.rs tracking", Nothing, ROW, |it| {
            let publish = async {
                in_tx!(it, tx => it.publisher.publish(&mut tx, "q", &1).await?);
                Ok::<_, BoxError>(())
            };
            outbox::tracking(publish).await?
        };
        "schema.rs migrate", NoTables, TABLES,
            |it| on_pool!(it, pool => outbox::migrate(pool).await?);
        "schema.rs migrate_tables", NoTables, TABLES,
            |it| on_pool!(it, pool => outbox::schema::migrate_tables(pool, &it.db.names).await?);
        "schema.rs validate_schema", Months, NONE,
            |it| on_pool!(it, pool => {
                outbox::schema::validate_schema(pool, &it.db.names, true).await?;
            });
    }
    .into()
}

/// Both databases know them by these names.
const TABLES: (&str, i64) = ("made", 3);

fn operating() -> Vec<Call> {
    calls! {
        "ops/mod.rs migrate", NoTables, TABLES, |it| it.operator.migrate().await?;
        "ops/mod.rs check", Months, NONE, |it| it.operator.check(true).await?;
        "ops/publish.rs publish", Nothing, ROW,
            |it| it.operator.publish(Outgoing::new("q", &1)).await?;
        "ops/publish.rs cancel_timer", Timer, NO_ROW,
            |it| it.operator.cancel_timer("q", "t").await?;
        "ops/pause.rs pause", Nothing, PAUSED, |it| it.operator.pause(&["q"], Some("why")).await?;
        "ops/pause.rs resume", Pause, RESUMED, |it| it.operator.resume(&["q"]).await?;
        "ops/pause.rs paused", Pause, NONE, |it| it.operator.paused().await?;
        "ops/peek.rs peek", Message, NONE,
            |it| it.operator.peek("q", &PeekOptions::default()).await?;
        "ops/queues.rs queues", Message, NONE, |it| it.operator.queues(10).await?;
        "ops/stats.rs sample", Message, NONE,
            |it| it.operator.sample(&SampleOptions::default()).await?;
        "ops/why/mod.rs why", Message, NONE, |it| it.operator.why(1, &WhyOptions::default()).await?;
        "ops/doctor/mod.rs examine", Message, NONE, |it| it.operator.doctor().examine().await?;
        "ops/bench.rs run", Nothing, NONE, |it| {
            let mut load = Load::default();
            load.messages = 3;
            it.app().bench(load)?.run().await?;
        };
        "ops/bench.rs clean_up", Nothing, NONE, |it| {
            let mut load = Load::default();
            load.messages = 0;
            it.app().bench(load)?.clean_up().await?;
        };
    }
    .into()
}

fn letters() -> Vec<Call> {
    calls! {
        "dlq/act.rs resolve", Letter, DEALT_WITH,
            |it| it.operator.dead_letters().resolve(&Filter::new(), Some("so")).await?;
        "dlq/act.rs ignore", Letter, DEALT_WITH,
            |it| it.operator.dead_letters().ignore(&Filter::new(), None).await?;
        "dlq/act.rs purge", Resolved, PURGED,
            |it| it.operator.dead_letters().purge(&Filter::new()).await?;
        "dlq/act.rs purge_with", Resolved, PURGED,
            |it| it.operator.dead_letters().purge_with(&Filter::new(), |_| ()).await?;
        "dlq/act.rs count_purged", Resolved, NONE,
            |it| it.operator.dead_letters().count_purged(&Filter::new()).await?;
        "dlq/read.rs list", Letter, NONE,
            |it| it.operator.dead_letters().list(&Filter::new(), None, 10).await?;
        "dlq/read.rs show", Letter, NONE, |it| it.operator.dead_letters().show(1).await?;
        "dlq/read.rs count", Letter, NONE,
            |it| it.operator.dead_letters().count(&Filter::new()).await?;
        "dlq/read.rs now", Nothing, NONE, |it| it.operator.dead_letters().now().await?;
        "dlq/groups.rs groups", Letter, NONE,
            |it| it.operator.dead_letters().groups(&Filter::new(), 10).await?;
        "dlq/replay.rs replay", Letter, ROW,
            |it| it.operator.dead_letters().replay(&Filter::new(), &Replay::new()).await?;
        "dlq/replay.rs replay_with", Letter, ROW, |it| {
            let letters = it.operator.dead_letters();
            letters.replay_with(&Filter::new(), &Replay::new(), |_| ()).await?;
        };
        "dlq/replay_in.rs replay_in", Letter, ROW, |it| in_tx!(it, tx => {
            let letters = it.operator.dead_letters();
            letters.replay_in(&mut tx, &Filter::new(), &Replay::new()).await?;
        });
        "dlq/dry_run.rs dry_run", Letter, NONE, |it| {
            let letter = it.db.int("SELECT id FROM outbox_dlq").await;
            it.app().only([writer(it.db)]).dry_run(letter).await?;
        };
        "dlq/partitions.rs partitions", Letter, NONE,
            |it| it.operator.dead_letters().partitions().await?;
    }
    .into()
}

/// On PostgreSQL alone.
fn months() -> Vec<Call> {
    calls! {
        "dlq/partitions.rs partition", Months,
            ("SELECT count(*) FROM pg_partitioned_table", 1),
            |it| it.operator.dead_letters().partition(1).await?;
        "dlq/partitions.rs drop_partitions", Months, NONE,
            |it| {
                let letters = it.operator.dead_letters();
                letters.partition(0).await?;
                letters.drop_partitions(SystemTime::UNIX_EPOCH, true).await?;
            };
    }
    .into()
}

/// On SQLite alone.
fn files() -> Vec<Call> {
    calls! {
        "store/sqlite/connect.rs connect", Nothing, NONE,
            |it| outbox::sqlite::connect(&it.db.url).await?.close().await;
        "store/sqlite/connect.rs begin", Nothing, NONE, |it| match &it.pool {
            Pool::Sqlite(pool) => outbox::sqlite::begin(pool).await?.rollback().await?,
            Pool::Postgres(_) => {}
        };
    }
    .into()
}

/// A handler that can be tried.
fn writer(db: &Db) -> Subscriber {
    async fn write<DB: outbox::Lends>(context: Context) -> Result<(), HandlerError> {
        Tx::<DB>::from_context(&context).await.map(drop)
    }
    if db.is_postgres() {
        Subscriber::new("writer", "q", write::<sqlx::Postgres>).requires::<Tx<sqlx::Postgres>>()
    } else {
        Subscriber::new("writer", "q", write::<sqlx::Sqlite>).requires::<Tx<sqlx::Sqlite>>()
    }
}

/// Their names.
pub fn names() -> Vec<&'static str> {
    let all = [publishing(), operating(), letters(), months(), files()];
    all.into_iter().flatten().map(|call| call.name).collect()
}

async fn a_call_may_be_dropped_at_any_point(db: &Db) {
    let all = [publishing(), operating(), letters()].into_iter().flatten().collect();
    let polls = sweep(db, all).await;
    swept_on(db, "calls", polls);
}

async fn a_call_that_makes_months_may_be_dropped_at_any_point(db: &Db) {
    let polls = sweep(db, months()).await;
    swept_on(db, "calls for months", polls);
}

async fn a_call_that_opens_a_file_may_be_dropped_at_any_point(db: &Db) {
    let polls = sweep(db, files()).await;
    swept_on(db, "calls for files", polls);
}

/// How often something was dropped.
async fn sweep(db: &Db, calls: Vec<Call>) -> usize {
    let (mut ground, mut polls) = (Ground::of(db).await, 0);
    let mut failed = Vec::new();
    for call in &calls {
        match call.sweep(&ground).await {
            Ok(times) => {
                println!("{}: dropped after 0 to {} polls", call.name, times - 1);
                polls += times;
            }
            Err(why) => {
                failed.push(format!("{}: {why}", call.name));
                // What it left must not fail the others.
                ground = Ground::of(db).await;
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    polls
}

impl Call {
    /// How many polls it takes.
    async fn sweep(&self, ground: &Ground<'_>) -> Result<usize, String> {
        for times in 0..MOST {
            let after = |what: &str| format!("dropped after {times} polls, {what}");
            ground.prepare(self.before).await;
            let ended = polled(times, (self.run)(ground)).await;
            ground.rests().await.map_err(|why| after(&why))?;
            let (effect, whole) = (self.counted(ground).await, self.effect.1);
            let done = match &ended {
                Some(ended) => ended.is_ok() && effect == whole,
                None => effect == 0 || effect == whole,
            };
            if !done {
                return Err(after(&format!("it did {effect} of {whole}: {ended:?}")));
            }
            ground.prepare(self.before).await;
            let next = soon(self.name, (self.run)(ground)).await;
            next.map_err(|why| after(&format!("the next call fails: {why}")))?;
            let effect = self.counted(ground).await;
            if effect != whole {
                return Err(after(&format!("the next call does {effect} of {whole}")));
            }
            if ended.is_some() {
                return Ok(times);
            }
        }
        Err("it does not end".into())
    }

    async fn counted(&self, ground: &Ground<'_>) -> i64 {
        let made = if ground.db.is_postgres() {
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'
             AND tablename IN ('outbox', 'outbox_dlq', 'outbox_paused')"
        } else {
            "SELECT count(*) FROM sqlite_master WHERE type = 'table'
             AND name IN ('outbox', 'outbox_dlq', 'outbox_paused')"
        };
        ground.db.int(if self.effect == TABLES { made } else { self.effect.0 }).await
    }
}
