//! Headers that another service wrote, as hostile as the column takes them: what the
//! library reads of their values, and what it hands on, fails no message. Those that are no
//! object fail their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::{Context, Headers, Outgoing, Publisher, subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::wait::eventually;
use sqlx::AssertSqlSafe;

on_both!(
    headers_of_others_fail_no_message_and_none_that_its_handler_publishes,
    headers_that_are_no_object_fail_their_message_and_no_other,
    headers_that_are_no_object_fail_whoever_asks_for_them,
);

/// All that the library reads.
const READ: [&str; 9] = [
    "content-type",
    "correlation_id",
    "outbox-tracking-ids",
    "outbox-expires-in",
    "outbox-original-id",
    "outbox-replays",
    "outbox-letter",
    "traceparent",
    "tracestate",
];

const VALUES: [&str; 16] = [
    "null",
    "true",
    "7",
    "-1",
    "1e400",
    "[]",
    "{}",
    r#"{"a": [1e999, "b"]}"#,
    r#""""#,
    r#"" ""#,
    r#""-1""#,
    r#""1e400""#,
    r#""99999999999999999999999999""#,
    r#""9223372036854775807,,,""#,
    r#""\n\r\t\u001b[31m\u202e\\'; DROP TABLE outbox; --""#,
    r#""00-\u00e9-\ud83d\ude80-ff""#,
];
/// PostgreSQL has none of them as jsonb.
const VALUES_OF_SQLITE: [&str; 3] = [r#""\u0000""#, r#""a\u0000b""#, r#""\ud800""#];

/// More than a publisher may put into its headers.
const LARGE: usize = 17 << 20;
/// Deeper than any reader goes.
const DEEP: usize = 1000;

/// What goes with a header so that it is looked at.
fn beside(name: &str) -> &'static str {
    match name {
        "tracestate" => {
            r#", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01""#
        }
        "outbox-tracking-ids" => r#", "foreign": 1e400"#,
        _ => "",
    }
}

/// Asks for all that can be asked of headers, publishes in each of the ways that hand
/// something on, and returns a message.
#[subscriber("hostile", publish = "next", retry = NoRetry)]
async fn hostile(
    n: i64,
    headers: Headers,
    publisher: Publisher,
    ctx: Context,
) -> anyhow::Result<i64> {
    assert!(ctx.correlation_id().len() <= LARGE);
    let (_, _) = (ctx.tracking_ids(), format!("{headers:?}"));
    let (_, _, _) = (headers.replays(), headers.original_id(), headers.letter_id());
    publisher.collect(Outgoing::new("next", &n))?;
    Ok(n)
}

/// Counts those that come, of two that each row has.
#[subscriber("next", retry = NoRetry)]
async fn next(_: i64, outbox::State(seen): outbox::State<Arc<AtomicUsize>>) {
    seen.fetch_add(1, Ordering::SeqCst);
}

async fn insert(db: &Db, headers: String) {
    let text = "INSERT INTO outbox (queue, payload, headers) VALUES ('hostile', ";
    match &db.pool {
        outbox_tests::db::Pool::Postgres(pool) => {
            let sql = AssertSqlSafe(format!("{text}'7', $1::jsonb)"));
            sqlx::query(sql).bind(headers).execute(pool).await.map(drop)
        }
        outbox_tests::db::Pool::Sqlite(pool) => {
            let sql = AssertSqlSafe(format!("{text}x'37', ?)"));
            sqlx::query(sql).bind(headers).execute(pool).await.map(drop)
        }
    }
    .unwrap();
}

async fn headers_of_others_fail_no_message_and_none_that_its_handler_publishes(db: &Db) {
    let mut rows = 0;
    let deep = format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP));
    let more = if db.is_postgres() { &[] } else { &VALUES_OF_SQLITE[..] };
    for name in READ {
        for value in VALUES.iter().chain(more).copied().chain([deep.as_str()]) {
            insert(db, format!(r#"{{"{name}": {value}{}}}"#, beside(name))).await;
            rows += 1;
        }
    }
    for name in
        ["content-type", "correlation_id", "outbox-tracking-ids", "traceparent", "tracestate"]
    {
        insert(db, format!(r#"{{"{name}": "{}"{}}}"#, "x".repeat(LARGE), beside(name))).await;
        rows += 1;
    }
    let seen = Arc::new(AtomicUsize::new(0));
    let app = db.app().state(Arc::clone(&seen)).only([hostile::subscriber(), next::subscriber()]);
    let running = app.start().await.unwrap();
    eventually("no row is left", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    let letters = "SELECT coalesce(last_exception, failure_reason) || ' of ' || queue || ': ' || \
        substr(CAST(headers AS text), 1, 100) FROM outbox_dlq";
    let letters = db.texts(letters).await;
    assert!(letters.is_empty(), "{letters:#?}");
    assert_eq!(seen.load(Ordering::SeqCst), 2 * rows);
}

/// Nobody knows then in what encoding the payload is.
async fn headers_that_are_no_object_fail_their_message_and_no_other(db: &Db) {
    for headers in ["[]", "null", "7", "true", r#""x""#, "{}"] {
        insert(db, headers.to_owned()).await;
    }
    let seen = Arc::new(AtomicUsize::new(0));
    let app = db.app().state(Arc::clone(&seen)).only([hostile::subscriber(), next::subscriber()]);
    let running = app.start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    // Whose run ended first has the first letter.
    let letters = "SELECT CAST(headers AS text) || ' ' || error_kind FROM outbox_dlq \
        ORDER BY original_id";
    let letters = db.texts(letters).await;
    assert_eq!(letters, ["[] decode", "7 decode", "true decode", "\"x\" decode"]);
    assert_eq!(seen.load(Ordering::SeqCst), 2 * 2, "of those without headers");
}

/// Bytes need no encoding, so the payload could be read.
#[subscriber("hostile", retry = NoRetry)]
async fn asks(_: &[u8], _: Headers) {}

#[subscriber("hostile", retry = NoRetry)]
async fn does_not(_: &[u8]) {}

async fn headers_that_are_no_object_fail_whoever_asks_for_them(db: &Db) {
    for (handler, letters) in [(does_not::subscriber(), 0), (asks::subscriber(), 1)] {
        insert(db, "[]".to_owned()).await;
        insert(db, "{}".to_owned()).await;
        let running = db.app().only([handler]).start().await.unwrap();
        db.drained().await;
        running.stop().await.unwrap();
        assert_eq!(db.letters().await, letters);
    }
    assert_eq!(db.texts("SELECT error_kind FROM outbox_dlq").await, ["decode"]);
}
