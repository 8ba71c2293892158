//! A program whose environment is wrong says so, ends, and leaves nothing behind.

use outbox_tests::backend::pg_url;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;

use super::child;

on_postgres!(a_database_that_is_not_there_is_named);

#[tokio::test]
async fn all_mistakes_are_told_at_once() {
    let long = "t".repeat(60);
    let log = child::refused(&[
        ("DATABASE_URL", "mysql://u:hunter2@host/db"),
        ("OUTBOX_TABLE", &long),
        ("OUTBOX_SCHEMA", ""),
        ("OUTBOX_DLQ_TABLE", "outbox"),
        ("OUTBOX_DRAIN_TIMEOUT", "soon"),
    ])
    .await;
    let variables = ["`OUTBOX_TABLE`", "`OUTBOX_SCHEMA`", "`OUTBOX_DLQ_TABLE`"];
    let parts = ["`DATABASE_URL`", &long, "schema name", "outbox table itself", "\"soon\""];
    for part in variables.into_iter().chain(parts) {
        assert!(log.contains(part), "{part} is missing in {log}");
    }
    assert!(!log.contains("hunter2"), "{log}");
}

#[tokio::test]
async fn a_url_of_another_kind_is_refused_with_those_that_are_understood() {
    for url in ["mysql://u:hunter2@h/db", "", "/tmp/x.db", "http://h", "postgres"] {
        let log = child::refused(&[("DATABASE_URL", url)]).await;
        assert!(log.contains("`DATABASE_URL`") && log.contains("postgres://"), "{url}: {log}");
        assert!(!log.contains("hunter2"), "{log}");
    }
}

/// As where a variable of a deployment was to be put in its place, and is not set.
#[tokio::test]
async fn a_url_that_is_empty_is_called_so() {
    let log = child::refused(&[("DATABASE_URL", "")]).await;
    assert!(log.contains("`DATABASE_URL` is empty"), "{log}");
}

/// Not for the file that stands in for an unset one.
#[cfg(unix)]
#[tokio::test]
async fn a_url_that_is_not_text_is_not_taken_for_unset() {
    use std::os::unix::ffi::OsStrExt;
    let url = std::ffi::OsStr::from_bytes(b"my\xffsql://h");
    let log = child::refused(&[("DATABASE_URL", url)]).await;
    assert!(log.contains("`DATABASE_URL` starts with neither"), "{log}");
}

#[tokio::test]
async fn a_duration_that_cannot_be_read_is_refused_with_one_that_can() {
    for text in ["soon", "15", "-1s", "", "1 fortnight", "99999999999999999999s"] {
        let log = child::refused(&[("OUTBOX_DRAIN_TIMEOUT", text)]).await;
        assert!(log.contains("`OUTBOX_DRAIN_TIMEOUT`") && log.contains("`15s`"), "{text}: {log}");
    }
}

/// As where the variables of a deployment are mixed up.
#[tokio::test]
async fn a_url_in_the_place_of_another_value_is_not_repeated() {
    for variable in [
        "OUTBOX_TABLE",
        "OUTBOX_SCHEMA",
        "OUTBOX_DLQ_TABLE",
        "OUTBOX_DRAIN_TIMEOUT",
        "OUTBOX_QUEUE_GAUGES",
        "OUTBOX_ASYNC_SETTLES",
        "OUTBOX_NOTIFY",
        "OUTBOX_PREPARED",
    ] {
        let log = child::refused(&[(variable, "postgres://u:hunter2@h/db")]).await;
        assert!(log.contains(&format!("`{variable}`")), "{log}");
        assert!(log.contains("postgres://..") && !log.contains("hunter2"), "{log}");
    }
}

/// Read as another name, it would be made.
#[cfg(unix)]
#[tokio::test]
async fn a_name_that_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    for variable in ["OUTBOX_TABLE", "OUTBOX_SCHEMA", "OUTBOX_DLQ_TABLE"] {
        let log = child::refused(&[(variable, std::ffi::OsStr::from_bytes(b"l\xf6sch"))]).await;
        assert!(log.contains(&format!("`{variable}`")) && log.contains("not UTF-8"), "{log}");
    }
}

/// A password with a `/` in it makes a URL of another shape.
#[tokio::test]
async fn the_part_of_a_url_that_is_wrong_is_named_and_the_password_is_not() {
    let server = "postgres://u:hunter2@127.0.0.1";
    for (url, part) in [
        (format!("{server}:port/db"), "invalid port number"),
        (format!("{server}:99999/db"), "invalid port number"),
        ("postgres://u:hunter2/x@127.0.0.1/db".to_owned(), "`%2F`"),
        ("postgres://u:hunter2%FF@127.0.0.1/db".to_owned(), "utf-8"),
        (format!("{server}/db?sslmode=hunter2"), "`sslmode` of `DATABASE_URL` is none of"),
        (format!("{server}/db?ssl-mode="), "`ssl-mode` of `DATABASE_URL` is none of"),
        (
            format!("{server}/db?user=u&port=hunter2"),
            "`port` of `DATABASE_URL` is not a port number",
        ),
        (
            format!("{server}/db?hostaddr=hunter2"),
            "`hostaddr` of `DATABASE_URL` is not an IP address",
        ),
        (
            format!("{server}/db?statement-cache-capacity=hunter2"),
            "`statement-cache-capacity` of `DATABASE_URL` is not a number",
        ),
        ("postgres://u:k?hunter2=2@127.0.0.1:5/t1".to_owned(), "`%3F` for `?`"),
        ("postgres://u:1?host=hunter2@127.0.0.1:5/t1".to_owned(), "`%3F` for `?`"),
        ("postgres://hunter2:1234/secret@127.0.0.1:5/t1".to_owned(), "`%2F` for `/`"),
        ("postgres://u:12#hunter2@127.0.0.1:5/t1".to_owned(), "`%23` for `#`"),
        ("postgres://u:a@hunter2/b@127.0.0.1:5/t1".to_owned(), "`%2F` for `/`"),
        ("postgres://u:a@127.0.0.1:1?hunter2=2@127.0.0.1:5/t1".to_owned(), "not shown"),
        ("postgres:u:hunter2@127.0.0.1:5/t1".to_owned(), "postgres://user:password@host"),
        ("sqlite:shop.db?mode=rx".to_owned(), "\"rx\" for `mode`"),
        ("sqlite:shop.db?jornal=wal".to_owned(), "`jornal`"),
    ] {
        let log = child::refused(&[("DATABASE_URL", &url)]).await;
        assert!(log.contains("`DATABASE_URL`") && log.contains(part), "{url}: {log}");
        assert!(!log.contains("hunter2"), "{url}: {log}");
    }
}

/// Each connection would have tables of its own, or nobody else any.
#[tokio::test]
async fn a_url_of_sqlite_that_names_no_file_is_refused() {
    for rest in ["", "//", "?mode=rwc", ":memory:", "//:memory:", "shop.db?mode=memory"] {
        let log = child::refused(&[("DATABASE_URL", &format!("sqlite:{rest}"))]).await;
        assert!(log.contains("`DATABASE_URL` names no file"), "{rest}: {log}");
    }
}

/// What looks for the file would not find it.
#[tokio::test]
async fn a_url_of_sqlite_that_names_a_file_by_a_uri_is_refused() {
    for name in ["file:shop.db", "//file:shop.db", "file::memory:"] {
        let log = child::refused(&[("DATABASE_URL", &format!("sqlite:{name}"))]).await;
        assert!(log.contains("write the path itself: `sqlite:shop.db`"), "{name}: {log}");
    }
}

#[tokio::test]
async fn a_file_that_is_to_be_there_is_named_and_not_made() {
    let log = child::refused(&[("DATABASE_URL", "sqlite:shop.db?mode=rw")]).await;
    assert!(log.contains("shop.db, which does not exist"), "{log}");
}

#[tokio::test]
async fn several_hosts_in_a_url_are_refused_as_such() {
    for rest in [
        "u:hunter2@h1,h2/db",
        "u:hunter2@h1:5432,h2:5433/db",
        "h1,h2/db",
        "u:hunter2@/db?host=h1,h2",
        "u:hunter2@/db?host=h1%2ch2&port=5432,5433",
        "u:hunter2@h/db?hostaddr=127.0.0.1,127.0.0.2",
    ] {
        let log = child::refused(&[("DATABASE_URL", &format!("postgres://{rest}"))]).await;
        let why = "`DATABASE_URL` names several hosts, but the driver takes only one";
        assert!(log.contains(why), "{rest}: {log}");
        assert!(!log.contains("hunter2"), "{rest}: {log}");
    }
}

/// As from the end of a file: there would be another database, with nothing in it.
#[cfg(unix)]
#[tokio::test]
async fn a_url_of_sqlite_that_white_space_or_bytes_have_spoilt_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let spoilt: [&[u8]; 8] = [
        b"shop.db\n",
        b"shop.db\r\n",
        b"shop.db ",
        b"shop.db\xc2\xa0",
        b"shop.db ?mode=rwc",
        b"shop.db?mode=rwc\n",
        b"shop\x08.db",
        b"caf\xe9.db",
    ];
    for rest in spoilt {
        let url = [b"sqlite:", rest].concat();
        let log = child::refused(&[("DATABASE_URL", std::ffi::OsStr::from_bytes(&url))]).await;
        let told = log.contains("`DATABASE_URL`") && log.contains("`%20`");
        assert!(told, "{}: {log}", rest.escape_ascii());
    }
}

/// Nor is the journal of a file changed.
#[tokio::test]
async fn a_start_that_is_refused_for_its_schema_makes_no_file() {
    let log = child::refused(&[("OUTBOX_SCHEMA", "shop")]).await;
    assert!(log.contains("SQLite has no schema \"shop\"; name none (`OUTBOX_SCHEMA`"), "{log}");
}

#[tokio::test]
async fn gauges_that_would_be_looked_at_more_than_once_a_second_are_refused() {
    for text in ["0s", "999ms", "often"] {
        let log = child::refused(&[("OUTBOX_QUEUE_GAUGES", text)]).await;
        assert!(log.contains("`OUTBOX_QUEUE_GAUGES`") && log.contains("`60s`"), "{text}: {log}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_told_without_the_password() {
    let log = child::refused(&[("DATABASE_URL", "postgres://u:hunter2@127.0.0.1:1/db")]).await;
    assert!(
        log.contains("connect to PostgreSQL: 127.0.0.1:1: ") && log.contains("refused"),
        "{log}"
    );
    assert!(!log.contains("hunter2"), "{log}");
    let log = child::refused(&[("DATABASE_URL", "postgres://u:hunter2@no-such.invalid/db")]).await;
    assert!(log.contains("connect to PostgreSQL: no-such.invalid:5432: "), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}

#[tokio::test]
async fn a_file_that_cannot_be_made_is_named() {
    let log = child::refused(&[("DATABASE_URL", "sqlite:/no/such/folder/shop.db")]).await;
    assert!(log.contains("/no/such/folder/shop.db"), "{log}");
}

async fn a_database_that_is_not_there_is_named(_: &Db) {
    let server = pg_url().unwrap();
    let url = format!("{}/no_such_database", server.rsplit_once('/').unwrap().0);
    let log = child::refused(&[("DATABASE_URL", &url)]).await;
    assert!(log.contains("no_such_database"), "{log}");
    // The line of its source from which the server says so.
    assert!(!log.contains("at line"), "{log}");
}
