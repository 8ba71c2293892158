//! Subscribers that end deliveries in every way there is, without a crash.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::retry::{Constant, NoRetry};
use outbox::{
    AckPolicy, BatchOutcome, Context, FromContext, HandlerError, OrVerdict, Outcome, Outgoing,
    Router, Subscriber, TimerConflict, Tx,
};
use outbox_tests::db::Db;

const MS: Duration = Duration::from_millis(1);

/// Every queue there is, without its prefix.
pub const QUEUES: [&str; 14] = [
    "acks", "batches", "books", "dies", "expires", "first", "often", "panics", "rejects",
    "retries", "returns", "sink", "snoozes", "timers",
];

fn soon() -> Constant {
    Constant::new(MS)
}

/// True the first time that it is asked of a row.
fn first_time(seen: &Mutex<HashSet<i64>>, ctx: &Context) -> bool {
    seen.lock().unwrap().insert(ctx.id())
}

macro_rules! booking {
    ($name:ident, $database:ty) => {
        /// Publishes in its transaction, and with its ack.
        async fn $name(ctx: Context, prefix: String) -> Result<(), HandlerError> {
            let mut tx = Tx::<$database>::from_context(&ctx).await?;
            let n: i64 = ctx.decode()?;
            outbox::publish(&mut tx, format!("{prefix}sink"), &n).await?;
            ctx.publisher().collect(Outgoing::new(format!("{prefix}sink"), &n))?;
            Ok(())
        }
    };
}

booking!(on_postgres, sqlx::Postgres);
booking!(on_sqlite, sqlx::Sqlite);

fn books(db: &Db, prefix: &str) -> Subscriber {
    let prefix = prefix.to_owned();
    if db.is_postgres() {
        Subscriber::new("books", "books", move |ctx| on_postgres(ctx, prefix.clone()))
            .requires::<Tx<sqlx::Postgres>>()
    } else {
        Subscriber::new("books", "books", move |ctx| on_sqlite(ctx, prefix.clone()))
            .requires::<Tx<sqlx::Sqlite>>()
    }
}

/// Two messages, and a timer of which there is one at a time.
fn returns(prefix: &str) -> Subscriber {
    let sink = format!("{prefix}sink");
    Subscriber::new("returns", "returns", move |ctx: Context| {
        let sink = sink.clone();
        async move {
            for n in 0..2 {
                ctx.publisher().collect(Outgoing::new(&sink, &n))?;
            }
            let timer = Outgoing::new(&sink, "timer").timer_id("one").delay(20 * MS);
            ctx.publisher().collect(timer)?;
            Ok::<_, outbox::PublishError>(())
        }
    })
}

fn batches() -> Subscriber {
    let seen = Mutex::new(HashSet::new());
    let seen = Arc::new(seen);
    let batches = Subscriber::batches("batches", "batches", 7, move |batch: Vec<Context>| {
        let seen = Arc::clone(&seen);
        async move {
            let mut outcome = BatchOutcome::default();
            for ctx in &batch {
                let n = ctx.decode::<i64>().unwrap_or_default();
                match n % 5 {
                    1 if first_time(&seen, ctx) => outcome.set(ctx, Err::<(), _>("once more")),
                    2 if first_time(&seen, ctx) => outcome.set(ctx, Outcome::Snooze(MS)),
                    3 => outcome.set(ctx, Outcome::reject("three")),
                    _ => {}
                }
            }
            outcome
        }
    });
    batches.retry(soon())
}

pub fn subscribers(db: &Db, prefix: &str) -> Router {
    let fails_twice = Subscriber::new("retries", "retries", |ctx: Context| async move {
        if ctx.attempts() < 2 { Err("not yet") } else { Ok(()) }
    });
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let snoozes = Subscriber::new("snoozes", "snoozes", move |ctx: Context| {
        let first = first_time(&seen, &ctx);
        async move { if first { Err("closed").or_snooze(MS) } else { Ok(()) } }
    });
    let dies = || Subscriber::new("dies", "dies", |_| async { Err::<(), _>(std::fmt::Error) });
    let acks = |name, queue| Subscriber::new(name, queue, |_| async {});
    let panics = Subscriber::new("panics", "panics", |ctx: Context| async move {
        assert!(ctx.attempts() > 0, "the first time");
    });
    Router::new()
        .prefix(prefix)
        .include(acks("acks", "acks"))
        .include(acks("sink", "sink"))
        .include(acks("expires", "expires"))
        .include(acks("timers", "timers"))
        .include(acks("often", "often").max_deliveries(1))
        .include(fails_twice.retry(soon()))
        .include(snoozes)
        .include(dies().retry(NoRetry))
        .include(panics.retry(soon()))
        .include(Subscriber::new("rejects", "rejects", |_| async { Outcome::reject("no") }))
        .include(
            Subscriber::new("first", "first", |_| async { Err::<(), _>("too late") })
                .ack(AckPolicy::AckFirst),
        )
        .include(returns(prefix))
        .include(batches())
        .include(books(db, prefix))
}

/// What is published: all of it before the app starts, so that some of it is late.
pub async fn publish(db: &Db, prefix: &str) {
    let to = |queue: &str, count: i64| {
        let queue = format!("{prefix}{queue}");
        (0..count).map(move |n| Outgoing::new(&queue, &n))
    };
    for (queue, count) in [
        ("acks", 50),
        ("retries", 10),
        ("snoozes", 7),
        ("dies", 3),
        ("panics", 4),
        ("rejects", 5),
        ("first", 2),
        ("returns", 6),
        ("batches", 60),
        ("books", 8),
        ("often", 2),
    ] {
        db.send_all(to(queue, count)).await;
    }
    db.send_all(to("acks", 2).chain(to("sink", 3))).await;
    db.send_all(to("expires", 3).map(|one| one.expires_in(Duration::from_millis(1)))).await;
    db.exec(format!(
        "UPDATE outbox SET deliveries_count = 1, attempts_count = 1 WHERE queue = '{prefix}often'"
    ))
    .await;
    let timer =
        |name: &'static str, delay| to("timers", 1).map(move |one| one.timer_id(name).delay(delay));
    db.send_all(timer("a", 5 * MS).chain(timer("b", 5 * MS))).await;
    db.send_all(timer("a", 5 * MS)).await;
    let later = timer("b", 500 * MS).map(|one| one.on_conflict(TimerConflict::Extend));
    db.send_all(later).await;
    // An earlier time moves nothing, so nothing is published.
    let earlier = timer("b", 5 * MS).map(|one| one.on_conflict(TimerConflict::Extend));
    db.send_all(earlier).await;
}
