//! Payloads and header values are the user's: no line at any level holds them, not
//! even the driver's.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use outbox::retry::{Constant, NoRetry};
use outbox::{
    AckPolicy, App, BoxError, Context, FromContext as _, HandlerError, OrVerdict, Outcome,
    Outgoing, Publisher, Subscriber, Tx,
};
use outbox_tests::db::{Db, Pool};
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_both, on_postgres};
use sqlx::postgres::PgPoolOptions;

use super::{closings, queue, told};

on_postgres!(the_text_around_a_transaction_that_did_not_begin_is_not_in_the_log);
on_both!(
    no_line_holds_a_payload_or_a_header_value,
    the_text_of_an_error_is_in_the_log_where_it_is_wanted,
    an_error_that_puts_its_message_off_is_not_told_as_a_failure,
);

/// Part of every payload and header value here.
const CANARY: &str = "canary-8c1f";

fn message(queue: &str) -> Outgoing {
    Outgoing::new(queue, &CANARY).header("authorization", format!("Bearer {CANARY}"))
}

/// As PostgreSQL shows a row whose column a constraint refuses.
fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

async fn no_line_holds_a_payload_or_a_header_value(db: &Db) {
    capture::with_the_driver();
    let q = ["acks", "fails", "panics", "decodes", "rejects", "slow"].map(|_| queue());
    let no_retry = |one: Subscriber| one.retry(NoRetry);
    let subscribers = [
        Subscriber::new("acks", &*q[0], |_| async {}),
        Subscriber::new("fails", &*q[1], |_| async {
            Err::<(), _>(format!("cannot deliver {CANARY}"))
        })
        .retry(Constant::new(Duration::from_millis(1)).max_attempts(2)),
        no_retry(Subscriber::new("panics", &*q[2], |context| async move {
            assert!(context.payload().is_empty(), "{}", context.decode::<String>().unwrap());
        })),
        no_retry(Subscriber::new("decodes", &*q[3], |context| async move {
            context.decode::<u64>().map(drop)
        })),
        Subscriber::new("rejects", &*q[4], |_| async { Outcome::reject(CANARY) }),
        no_retry(Subscriber::new("slow", &*q[5], |_| std::future::pending::<()>()))
            .timeout(Duration::from_millis(10)),
    ];
    refuse_every_letter_of(db, &q[4]).await;
    let running = db.app().only(subscribers).start().await.unwrap();
    db.send_all(q.iter().map(|queue| message(queue))).await;
    for queue in &q {
        eventually("it is closed", async || !closings(queue).is_empty()).await;
    }
    eventually("all but the refused are gone", async || db.rows().await == 1).await;
    running.stop().await.unwrap();
    refused_by_the_table(db, &q[0]).await;

    let hidden = [CANARY.to_owned(), hex(CANARY), hex(CANARY).to_uppercase(), "Bearer".into()];
    for line in capture::lines() {
        let text = line.text();
        assert!(!hidden.iter().any(|word| text.contains(word)), "{text}");
    }
    let spans = capture::lines().into_iter().filter(|line| line.target == "outbox::handler");
    let kinds: BTreeSet<_> =
        spans.filter_map(|line| line.get("error.type").map(str::to_owned)).collect();
    for kind in ["String", "panic", "decode", "timeout"] {
        assert!(kinds.contains(kind), "the spans are looked at as well: {kinds:?}");
    }
    let levels = capture::lines().iter().filter(|line| line.target.starts_with("sqlx")).count();
    assert!(levels > 0, "the driver's lines are looked at as well");
    let debug = format!("{:?}", message("q"));
    assert!(!debug.contains(CANARY), "{debug}");
}

/// As a dead letter would keep it, for each run.
async fn the_text_of_an_error_is_in_the_log_where_it_is_wanted(db: &Db) {
    for (wanted, ack) in [
        (false, AckPolicy::NackOnError),
        (true, AckPolicy::NackOnError),
        (true, AckPolicy::AckFirst),
    ] {
        let queue = queue();
        let says = format!("no host for {queue}");
        let error = says.clone();
        let fails = Subscriber::new("fails", &*queue, move |_| {
            let error = error.clone();
            async move { Err::<(), _>(error) }
        });
        let fails = fails.retry(Constant::new(Duration::from_millis(1)).max_attempts(2)).ack(ack);
        let app = db.app().log_errors(wanted).error_renderer(|error| Some(format!("<{error}>")));
        let running = app.only([fails]).start().await.unwrap();
        db.publish(&queue, 7).await;
        db.drained().await;
        running.stop().await.unwrap();
        let runs = if ack == AckPolicy::AckFirst { 1 } else { 2 };
        let told = format!("a handler failed: <{says}>");
        let lines = capture::count(|line: &capture::Line| line.says("message", &told));
        assert_eq!(lines, if wanted { runs } else { 0 }, "{ack:?}");
    }
}

/// As it fails nothing, nobody is to be warned.
async fn an_error_that_puts_its_message_off_is_not_told_as_a_failure(db: &Db) {
    let queue = queue();
    let says = format!("closed: {queue}");
    let error = says.clone();
    let first = AtomicBool::new(true);
    let waits = Subscriber::new("waits", &*queue, move |_| {
        let failed: Result<(), String> = Err(error.clone());
        let first = first.swap(false, Relaxed);
        async move {
            if first { failed.or_snooze(Duration::from_millis(1)) } else { failed.or_reject() }
        }
    });
    let running = db.app().log_errors(true).only([waits]).start().await.unwrap();
    db.publish(&queue, 7).await;
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(told(&queue)[..4], ["dispatched", "snoozed", "dispatched", "nacked_terminal"]);
    let lines = capture::count(|line: &capture::Line| line.says("message", &says));
    assert_eq!(lines, 1);
}

/// What a handler says around the database's words.
#[derive(Debug, thiserror::Error)]
#[error("for the customer {CANARY}")]
struct Wrapped(#[source] BoxError);

async fn the_text_around_a_transaction_that_did_not_begin_is_not_in_the_log(db: &Db) {
    capture::start();
    let queue = queue();
    let waits = Duration::from_millis(100);
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(waits);
    let pool = pool.connect_with((*db.pg().connect_options()).clone()).await.unwrap();
    let wraps = Subscriber::new("wraps", &*queue, async |ctx: Context| {
        let begun = Tx::<sqlx::Postgres>::from_context(&ctx).await;
        begun.map(drop).map_err(|error| HandlerError::new("wrapped", Wrapped(error.into())))
    });
    let app = App::postgres(pool.clone()).names(db.names.clone());
    let wraps = wraps.requires::<Tx<sqlx::Postgres>>().retry(NoRetry);
    let running = app.only([wraps]).start().await.unwrap();
    let only = pool.acquire().await.unwrap();
    db.publish(&queue, 7).await;
    let told = |line: &capture::Line| {
        line.says("message", "did not begin or did not commit") && line.says("subscriber", "wraps")
    };
    eventually("it is told", async || capture::count(told) > 0).await;
    drop(only);
    db.drained().await;
    running.stop().await.unwrap();
    let lines = capture::lines();
    let line = lines.iter().find(|line| told(line)).unwrap();
    assert!(line.says("error", "pool") && line.says("exception_type", "wrapped"), "{line:?}");
    assert!(lines.iter().all(|line| !line.text().contains("for the customer")));
    assert_eq!(db.letters().await, 0);
}

/// The database's own words then show the row, as far as anybody asks for them.
async fn refuse_every_letter_of(db: &Db, queue: &str) {
    if db.is_postgres() {
        db.exec(format!("ALTER TABLE outbox_dlq ADD CHECK (queue <> '{queue}')")).await;
    } else {
        db.exec(format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON outbox_dlq WHEN NEW.queue = '{queue}'
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        ))
        .await;
    }
}

async fn refused_by_the_table(db: &Db, queue: &str) {
    db.exec("DELETE FROM outbox").await;
    db.exec("ALTER TABLE outbox RENAME COLUMN headers TO other").await;
    let publisher = Publisher::new(db.names.clone());
    let failed = match &db.pool {
        Pool::Postgres(pool) => {
            publisher.send(&mut pool.begin().await.unwrap(), message(queue)).await
        }
        Pool::Sqlite(pool) => {
            publisher.send(&mut pool.begin().await.unwrap(), message(queue)).await
        }
    };
    let text = failed.unwrap_err().to_string();
    assert!(!text.contains(CANARY), "{text}");
}
