//! Every command of `docs/operations.md`, in its order, on tables as they are when
//! something is wrong.

use std::process::Stdio;

use outbox::Outgoing;
use outbox_tests::db::{Db, Pool};
use serde_json::json;

use crate::plant::plant;
use crate::program::{ended, shop};

const PAGE: &str = include_str!("../../../docs/operations.md");

/// The words of a command, as a shell takes them apart.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for c in line.chars() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.push(String::new()),
            (c, _) => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

struct Line {
    words: Vec<String>,
    remark: String,
}

fn lines() -> Vec<Line> {
    let blocks = PAGE.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let line = |line: &str| {
        let (command, remark) = line.split_once("  #").unwrap_or((line, ""));
        let words = words(command.strip_prefix("outbox ").unwrap_or_else(|| panic!("{line}")));
        Line { words, remark: remark.into() }
    };
    blocks.flat_map(|block| block.lines().map(line)).collect()
}

/// Commands in sentences are of those that are run.
#[test]
fn no_command_is_only_mentioned() {
    let names = |words: &[String]| {
        let words = words.iter().take_while(|word| word.chars().all(char::is_alphabetic));
        words.take(2).cloned().collect::<Vec<_>>()
    };
    let run: Vec<_> = lines().iter().map(|line| names(&line.words)).collect();
    let mentioned = PAGE.split("`outbox ").skip(1).filter_map(|rest| rest.split_once('`'));
    let mentioned: Vec<_> = mentioned.map(|(command, _)| names(&words(command))).collect();
    assert!(mentioned.len() > 5);
    for command in mentioned {
        assert!(run.iter().any(|one| one.starts_with(&command)), "{command:?} is not run");
    }
}

async fn every_command_does_what_the_page_says(db: &Db) {
    for id in 1..=3 {
        db.send(Outgoing::new("orders", &json!({ "id": id, "amount": 1 }))).await;
    }
    plant(db, "orders", 6).await;
    plant(db, "notes", 2).await;
    let payload = if db.is_postgres() {
        "convert_to('{\"id\": 7, \"amount\": 5}', 'UTF8')"
    } else {
        "CAST('{\"id\": 7, \"amount\": 5}' AS BLOB)"
    };
    db.exec(format!("UPDATE outbox_dlq SET payload = {payload}")).await;

    let mut running = None;
    let lines = lines();
    assert!(lines.len() > 25);
    for Line { words, remark } in &lines {
        let args: Vec<_> = words.iter().map(String::as_str).collect();
        if args.starts_with(&["dlq", "replay"]) && running.is_none() {
            // The cause is mended, and the program runs again.
            running = Some(shop(db, &["run"]).stdout(Stdio::null()).spawn().unwrap());
        }
        let patience = if args == ["doctor"] { &["--notification", "30s"][..] } else { &[] };
        let ran = ended(shop(db, &[&args, patience].concat())).await;
        let only_postgres = remark.trim_start().starts_with("PostgreSQL") && !db.is_postgres();
        let bad = remark.contains("exits with 1") || only_postgres;
        assert_eq!(ran.code, i32::from(bad), "outbox {}: {ran:?}", words.join(" "));
        if only_postgres {
            assert!(ran.err.contains("SQLite"), "{ran:?}");
        }
    }
    db.drained().await;
    let left = "SELECT count(*) FROM outbox_dlq WHERE status = 'failed'";
    assert_eq!(db.int(left).await, 0, "letters are left");
    running.unwrap().kill().await.unwrap();
}

/// The months by hand: letters stay, the tables pass the check, the commands go on.
async fn the_recipe_makes_months(db: &Db) {
    plant(db, "orders", 6).await;
    let recipe = PAGE.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
    let (make, drop) = recipe.split_once("COMMIT;\n").unwrap();
    let Pool::Postgres(pool) = &db.pool else { panic!("this is SQLite") };
    let run = async |sql: String| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(pool).await.unwrap();
    };
    run(format!("{make}COMMIT")).await;
    assert_eq!(db.letters().await, 6);
    plant(db, "orders", 1).await;
    assert_eq!(db.int("SELECT max(id) FROM outbox_dlq").await, 8, "an id was given out again");
    ended(shop(db, &["check"])).await.good();
    ended(shop(db, &["dlq", "partition", "--yes"])).await.good();
    ended(shop(db, &["check"])).await.good();
    run(drop.to_owned()).await;
}

outbox_tests::on_postgres!(the_recipe_makes_months);
outbox_tests::on_both!(every_command_does_what_the_page_says);
