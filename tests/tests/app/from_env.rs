//! An app as the environment describes it, from outside.

use std::time::Instant;

use outbox::TableNames;
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};

use super::*;

on_both!(
    the_url_names_the_database,
    the_names_of_the_tables_are_honoured,
    without_a_dead_letter_table_a_warning_names_who_can_lose_messages,
    the_drain_timeout_is_honoured,
);

on_postgres!(the_schema_is_honoured, the_password_is_never_told,);

async fn the_url_names_the_database(db: &Db) {
    db.publish("quick", 7).await;
    let program = child::on(db, &[]).await;
    program.says("handled 7").await;
    db.drained().await;
    program.signal("TERM").await;
    let end = program.end().await;
    assert_eq!((end.code, end.out.as_str()), (Some(0), "handled 7\n"), "{}", end.log);
}

#[tokio::test]
async fn without_a_url_a_file_is_made_here_with_a_warning() {
    let folder = child::folder();
    let program = child::start(&folder, &[("OUTBOX_DRAIN_TIMEOUT", "15s")]);
    program.logs("`DATABASE_URL` is not set").await;
    program.logs("WARN").await;
    program.logs("subscribed").await;
    let pool = outbox::sqlite::connect(&format!("sqlite:{}/outbox.db", folder.display())).await;
    let pool = pool.unwrap();
    let mut tx = outbox::sqlite::begin(&pool).await.unwrap();
    outbox::publish(&mut tx, "quick", &7).await.unwrap();
    tx.commit().await.unwrap();
    program.says("handled 7").await;
    program.signal("INT").await;
    assert_eq!(program.end().await.code, Some(0));
    pool.close().await;
    std::fs::remove_dir_all(folder).unwrap();
}

async fn the_names_of_the_tables_are_honoured(db: &Db) {
    let named = TableNames::new("my events").unwrap().with_dlq("dead \"ones\"").unwrap();
    let named = db.named(named);
    named.migrate().await;
    let names = [("OUTBOX_TABLE", "my events"), ("OUTBOX_DLQ_TABLE", "dead \"ones\"")];
    let program = child::on(&named, &names).await;
    named.publish("quick", 7).await;
    named.publish("broken", 8).await;
    program.says("handled 7").await;
    eventually("the letter is where it was asked for", async || {
        named.int("SELECT count(*) FROM \"dead \"\"ones\"\"\" WHERE queue = 'broken'").await == 1
    })
    .await;
    assert_eq!(db.letters().await, 0);
    program.signal("TERM").await;
    assert_eq!(program.end().await.code, Some(0));
}

async fn the_schema_is_honoured(db: &Db) {
    db.exec("CREATE SCHEMA shop").await;
    let named = db.named(db.names.clone().in_schema("shop").unwrap());
    named.migrate().await;
    let program = child::on(&named, &[("OUTBOX_SCHEMA", "shop")]).await;
    db.publish("quick", 6).await;
    named.publish("quick", 7).await;
    named.publish("broken", 8).await;
    program.says("handled 7").await;
    eventually("the letter is in the schema", async || {
        named.int("SELECT count(*) FROM shop.outbox_dlq").await == 1
    })
    .await;
    program.signal("TERM").await;
    assert_eq!(program.end().await.out, "handled 7\n");
    assert_eq!((db.rows().await, db.letters().await), (1, 0), "the other schema is not touched");
}

async fn without_a_dead_letter_table_a_warning_names_who_can_lose_messages(db: &Db) {
    let program = child::start(&std::env::temp_dir(), &[("DATABASE_URL", &db.url)]);
    program.logs("no dead-letter table").await;
    db.publish("broken", 7).await;
    db.drained().await;
    program.signal("TERM").await;
    let end = program.end().await;
    let warnings: Vec<_> =
        end.log.lines().filter(|line| line.contains("no dead-letter table")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("broken"), "{}", end.log);
    assert_eq!((end.code, db.letters().await), (Some(0), 0));
}

async fn the_drain_timeout_is_honoured(db: &Db) {
    let program = child::on(db, &[("OUTBOX_DRAIN_TIMEOUT", "100ms")]).await;
    db.publish("endless", 7).await;
    program.says("started 7").await;
    let begin = Instant::now();
    program.signal("TERM").await;
    let end = program.end().await;
    assert!(begin.elapsed() < 14 * SECOND, "it waited as long as without the variable");
    assert_eq!(end.code, Some(1), "{}", end.log);
    assert!(end.log.contains("drain timeout"), "{}", end.log);
    assert_eq!((db.rows().await, db.leased().await), (1, 0), "the row is given back");
}

/// The server trusts whoever comes, so any password will do.
async fn the_password_is_never_told(db: &Db) {
    let options = db.pg().connect_options();
    let url = format!(
        "postgres://{}:hunter2@{}:{}/{}",
        options.get_username(),
        options.get_host(),
        options.get_port(),
        options.get_database().unwrap()
    );
    let program = child::start(&std::env::temp_dir(), &[("DATABASE_URL", &url)]);
    program.logs("subscribed").await;
    db.publish("quick", 7).await;
    program.says("handled 7").await;
    db.exec("DROP TABLE outbox").await;
    program.logs("ERROR").await;
    program.signal("TERM").await;
    let end = program.end().await;
    assert!(!end.log.contains("hunter2") && !end.out.contains("hunter2"), "{}", end.log);
}
