//! What the README shows first: on each database, and with a wrong URL.

use std::time::{Duration, Instant};

use outbox_tests::backend::{pg_url, require};
use sqlx::Connection as _;

use super::run::{Example, assert_lines};

const QUICKSTART: &[&str] = &[
    "Four orders and one invoice, each committed together with its message.",
    "One more order is rolled back, and its message with it.",
    "The app starts:",
    "order 2 fails (attempt 1); it will be tried again",
    "order 2 fails (attempt 2); it will be tried again",
    "order 2 is confirmed (attempt 3)",
    "What was dead-lettered, and why:",
    "invoices: retry_terminal: \"order 5 has no address\"",
];
const FIGURES: &str =
    "quickstart: published=5 rolled_back=1 handled=4 retried=2 dead_lettered=1 left=0";

#[test]
fn quickstart_needs_no_server_and_ends_by_itself() {
    Example::new("quickstart", "built").story();
    // Without cargo, which may wait for somebody else's build.
    let quickstart = Example::built("quickstart", "sqlite");
    let start = Instant::now();
    let story = quickstart.story();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(story.starts_with("Database: SQLite, a temporary file\n"), "{story}");
    assert_lines(&story, QUICKSTART);
    assert_eq!(story.lines().last(), Some(FIGURES));
}

#[tokio::test]
async fn quickstart_runs_on_postgresql_and_leaves_nothing_there() {
    if !require("postgres") {
        return;
    }
    let url = pg_url().unwrap();
    let story = Example::new("quickstart", "postgres").database(&url).story();
    assert_lines(&story, QUICKSTART);
    assert_eq!(story.lines().last(), Some(FIGURES));

    let first = story.lines().next().unwrap();
    let schema = first.strip_prefix("Database: PostgreSQL, the temporary schema ").unwrap();
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    let there: bool = sqlx::query_scalar("SELECT to_regnamespace($1) IS NOT NULL")
        .bind(schema)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(!there, "{schema} is left behind");
}

#[test]
fn a_wrong_database_url_is_named_and_not_shown() {
    for (run, url, says) in [
        ("scheme", "mysql://u:hunter2@host/db", "starts with neither `postgres://` nor `sqlite:`"),
        ("url", "postgres://u:hunter2@host:port/db", "is not a PostgreSQL URL"),
        ("server", "postgres://u:hunter2@127.0.0.1:1/db", "the server that `DATABASE_URL` names"),
    ] {
        let complaint = Example::new("quickstart", run).database(url).complaint();
        assert!(complaint.contains(says), "{complaint}");
        assert!(!complaint.contains("hunter2"), "{complaint}");
    }
}
