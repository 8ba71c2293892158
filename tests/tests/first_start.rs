//! What a new user meets: migrating under changing names, a start that is refused.

use std::time::Duration;

use outbox::schema::{migrate_tables, validate_schema};
use outbox::testing::store::PgStore;
use outbox::{App, Context, Error, Subscriber, TableNames};
use outbox_tests::backend::{PG_URL, REQUIRE, pg_url, require};

fn names(dlq: &str) -> TableNames {
    TableNames::default().with_dlq(dlq).unwrap()
}

/// The URL of a file that is not there, in a folder that is.
fn file_in(folder: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    format!("sqlite:{}", folder.join("shop.db").display())
}

#[tokio::test]
async fn a_dead_letter_table_of_another_name_is_made_later_on_sqlite() {
    let url = file_in("dlq-later");
    let pool = outbox::sqlite::connect(&url).await.unwrap();
    for dlq in ["outbox_dlq", "graveyard", "graveyard"] {
        migrate_tables(&pool, &names(dlq)).await.unwrap();
        validate_schema(&pool, &names(dlq), false).await.unwrap();
    }
}

#[tokio::test]
async fn a_dead_letter_table_of_another_name_is_made_later_on_postgresql() {
    if !require("postgres") {
        return;
    }
    let url = pg_url().unwrap();
    let setup = sqlx::PgPool::connect(&url).await.unwrap();
    for statement in ["DROP SCHEMA IF EXISTS dlq_later CASCADE", "CREATE SCHEMA dlq_later"] {
        sqlx::query(statement).execute(&setup).await.unwrap();
    }
    let options = url.parse::<sqlx::postgres::PgConnectOptions>().unwrap();
    let pool = sqlx::PgPool::connect_lazy_with(options.options([("search_path", "dlq_later")]));
    for names in [
        names("outbox_dlq"),
        names("graveyard"),
        names("outbox_dlq").in_schema("dlq_later").unwrap(),
        names("crypt").in_schema("dlq_later").unwrap(),
    ] {
        migrate_tables(&pool, &names).await.unwrap();
        validate_schema(&pool, &names, true).await.unwrap();
    }
    pool.close().await;
    sqlx::query("DROP SCHEMA dlq_later CASCADE").execute(&setup).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_with_its_own_error() {
    let nobody = sqlx::PgPool::connect_lazy("postgres://u:hunter2@127.0.0.1:1/db").unwrap();
    let store = PgStore::new(&nobody, TableNames::default());
    let error = store.reach(Duration::ZERO).await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_start_lists_what_is_missing_beside_the_tables() {
    let url = file_in("no-tables");
    let pool = outbox::sqlite::connect(&url).await.unwrap();
    let wants =
        Subscriber::new("wants", "q", |_: Context| async {}).requires::<outbox::State<u8>>();
    let refused = App::sqlite(pool).only([wants]).dlq("").start().await.unwrap_err();
    let Error::Launch(reasons) = refused else { panic!("{refused}") };
    assert_eq!(reasons.len(), 3, "{reasons:#?}");
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_named() {
    let error = outbox::sqlite::connect("sqlite:no/such/folder/shop.db").await.unwrap_err();
    assert!(error.to_string().contains("no/such/folder/shop.db"), "{error}");
    assert!(error.to_string().contains("the folder no/such/folder of"), "{error}");
}

#[tokio::test]
async fn a_folder_in_the_place_of_a_file_is_named() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let error = outbox::sqlite::connect(&format!("sqlite:{folder}")).await.unwrap_err();
    assert!(error.to_string().contains(&format!("{folder}, which is a folder")), "{error}");
}

/// Each connection would have tables of its own.
#[tokio::test]
async fn a_url_that_names_no_file_is_refused() {
    for url in ["sqlite:", "sqlite://", "sqlite:?mode=rwc", "sqlite:shop.db?mode=memory"] {
        let error = outbox::sqlite::connect(url).await.unwrap_err();
        assert!(error.to_string().contains("names no file"), "{url}: {error}");
    }
}

/// What looks for the file would not find it.
#[tokio::test]
async fn a_url_that_names_a_file_by_a_uri_is_refused() {
    for url in ["sqlite:file:shop.db", "sqlite://file:shop.db?mode=rw", "sqlite:file::memory:"] {
        let error = outbox::sqlite::connect(url).await.unwrap_err();
        assert!(error.to_string().contains("write the path itself"), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_file_that_is_to_be_there_is_not_made() {
    let url = file_in("to-be-there");
    let there = format!("{url}?mode=rw");
    let error = outbox::sqlite::connect(&there).await.unwrap_err().to_string();
    assert!(error.contains("shop.db, which does not exist"), "{error}");
    assert!(!std::path::Path::new(url.strip_prefix("sqlite:").unwrap()).exists());
    outbox::sqlite::connect(&url).await.unwrap().close().await;
    outbox::sqlite::connect(&there).await.unwrap();
}

/// As with a folder that this user may not enter. A file in the place of a folder is like that, for
/// whoever may enter all.
#[tokio::test]
async fn a_file_that_nobody_can_look_for_is_not_said_to_be_missing() {
    let in_the_way = file_in("in-the-way");
    std::fs::write(in_the_way.strip_prefix("sqlite:").unwrap(), "").unwrap();
    for file in ["other.db", "folder/other.db"] {
        let url = format!("{in_the_way}/{file}");
        let opened = outbox::sqlite::connect(&url).await.unwrap_err();
        let lazy = sqlx::SqlitePool::connect_lazy(&url).unwrap();
        let examined = App::sqlite(lazy).only([]).doctor().unwrap().examine().await.unwrap_err();
        for error in [opened, examined] {
            let told = error.to_string();
            assert!(told.contains(file) && told.contains("unable to open"), "{told}");
            assert!(!told.contains("does not exist"), "{told}");
        }
    }
}

/// Its tables were made, and no other connection sees them.
#[tokio::test]
async fn a_pool_whose_database_goes_with_each_connection_is_refused_and_a_shared_one_is_not() {
    let it = || Subscriber::new("it", "q", |_: Context| async {});
    for name in [":memory:", ""] {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(name);
        let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
        let pool = pool.connect_with(options).await.unwrap();
        outbox::migrate(&pool).await.unwrap();
        let refused = App::sqlite(pool).only([it()]).start().await.unwrap_err();
        let Error::Launch(reasons) = refused else { panic!("{refused}") };
        assert_eq!(reasons.len(), 1, "{reasons:#?}");
        assert!(
            reasons[0].contains("each connection of the pool has its own database"),
            "{reasons:#?}"
        );
    }
    let pool = outbox::sqlite::connect("sqlite::memory:").await.unwrap();
    outbox::migrate(&pool).await.unwrap();
    let running = App::sqlite(pool).only([it()]).start().await.unwrap();
    running.ping().await.unwrap();
    running.stop().await.unwrap();
}

/// A plain `begin` reads, and cannot write behind somebody else who did.
#[tokio::test]
async fn what_stands_in_the_way_of_a_message_is_told_with_the_way_out() {
    let pool = outbox::sqlite::connect(&file_in("way-out")).await.unwrap();
    let publisher = outbox::Publisher::new(outbox::TableNames::default());
    let mut tx = outbox::sqlite::begin(&pool).await.unwrap();
    let error = publisher.publish(&mut tx, "q", &1).await.unwrap_err().to_string();
    assert!(
        error.contains("no such table") && error.contains("`outbox::migrate(&pool)`"),
        "{error}"
    );
    tx.rollback().await.unwrap();

    outbox::migrate(&pool).await.unwrap();
    let mut early = pool.begin().await.unwrap();
    sqlx::query("SELECT * FROM outbox").fetch_all(&mut *early).await.unwrap();
    let mut other = outbox::sqlite::begin(&pool).await.unwrap();
    publisher.publish(&mut other, "q", &1).await.unwrap();
    other.commit().await.unwrap();
    for batch in [false, true] {
        let message = outbox::Outgoing::new("q", &1);
        let error = if batch {
            publisher.publish_batch(&mut early, vec![message]).await.unwrap_err()
        } else {
            publisher.send(&mut early, message).await.map(drop).unwrap_err()
        };
        assert!(error.to_string().contains("`outbox::sqlite::begin(&pool)`"), "{error}");
    }
    early.rollback().await.unwrap();
}

/// SQLite waits for a writer, but not with the change to a write-ahead log.
#[tokio::test]
async fn a_file_that_somebody_writes_without_a_log_is_opened_when_he_has_ended() {
    let url = file_in("no-log");
    let options = url.parse::<sqlx::sqlite::SqliteConnectOptions>().unwrap();
    let plain = sqlx::SqlitePool::connect_with(options.create_if_missing(true)).await.unwrap();
    let mut writer = plain.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::query("CREATE TABLE orders (id bigint)").execute(&mut *writer).await.unwrap();
    let opened = tokio::spawn(async move { outbox::sqlite::connect(&url).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!opened.is_finished(), "it waits");
    writer.commit().await.unwrap();
    plain.close().await;
    opened.await.unwrap().unwrap();
}

/// What a test prints that passes, its runner keeps to itself.
#[test]
fn tests_without_their_server_say_that_they_were_skipped_or_fail_where_it_is_required() {
    let run = |required: &str| {
        let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
        tests.arg("postgresql").env_remove(PG_URL).env(REQUIRE, required).output().unwrap()
    };
    let skipped = run("sqlite");
    let said = String::from_utf8_lossy(&skipped.stderr);
    assert!(skipped.status.success() && said.contains("skipped: no PostgreSQL"), "{said}");
    assert!(!run("sqlite, postgres").status.success());
}
