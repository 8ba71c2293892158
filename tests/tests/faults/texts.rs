//! Texts that no database takes: NUL, lone surrogates, ten megabytes of them. Each row
//! ends once, and holds up no other.

use outbox::{Outgoing, subscriber};
use outbox_tests::db::Db;
use outbox_tests::{on_both, probe};

use super::OFTEN;

on_both!(
    texts_that_no_database_takes_end_in_one_dead_letter_each,
    headers_that_no_database_takes_hold_up_no_row,
);

/// Its error is what it got, a NUL, and more than fits.
#[subscriber("texts", retry = NoRetry)]
async fn refuse(text: String) -> Result<(), String> {
    Err(format!("{text}\0{}", "\u{10ffff}".repeat(2_500_000)))
}

async fn texts_that_no_database_takes_end_in_one_dead_letter_each(db: &Db) {
    let json = [r#""\ud800""#, r#""\udc00\ud800""#, r#""\u0000""#, "\"\0\"", r#""plain""#];
    db.send_all(json.map(|body| Outgoing::raw("texts", body).content_type("application/json")))
        .await;
    let running = db.app().only([refuse::subscriber()]).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 5);
    let longest = "SELECT CAST(max(octet_length(last_exception)) AS bigint) FROM outbox_dlq";
    let longest = db.int(longest).await;
    assert!((8000..=8192).contains(&longest), "{longest} bytes");
    let kinds = "SELECT CAST(count(*) AS text) || ' ' || failure_reason FROM outbox_dlq
        GROUP BY failure_reason";
    assert_eq!(db.texts(kinds).await, ["5 retry_terminal"]);
}

/// PostgreSQL refuses them as jsonb, so nobody can have written them. SQLite keeps them
/// as text.
async fn headers_that_no_database_takes_hold_up_no_row(db: &Db) {
    db.publish("q", 1).await;
    let hostile = [r#"{"a": "\ud800"}"#, r#"{"a": "\u0000"}"#, r#"{"\udc00": 1}"#];
    let (subscriber, probe) = probe::free("it", "q");
    let two = if db.is_postgres() { "'2'" } else { "x'32'" };
    let mut runs = 1;
    for headers in hostile {
        let set = format!(
            "INSERT INTO outbox (queue, payload, headers) VALUES ('q', {two}, '{headers}')"
        );
        if !db.is_postgres() {
            db.exec(set).await;
            runs += 1;
        } else if let outbox_tests::db::Pool::Postgres(pool) = &db.pool {
            sqlx::query(sqlx::AssertSqlSafe(set)).execute(pool).await.unwrap_err();
        }
    }
    let running =
        db.app().only([subscriber.min_poll(OFTEN).max_poll(OFTEN)]).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!((probe.finished(), db.letters().await), (runs, 0));
}
