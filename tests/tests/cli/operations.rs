//! Every command of `docs/operations.md`, in its order, on tables as they are when
//! something is wrong.

use std::process::Stdio;

use outbox::Outgoing;
use outbox_tests::db::{Db, Pool};
use serde_json::json;

use crate::plant::plant;
use crate::program::{ended, shop};

const PAGE: &str = include_str!("../../../docs/operations.md");
const ALERTS: &str = include_str!("../../../dashboards/alerts.yml");

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

/// What stands in backticks and begins so, in sentences that are broken anywhere.
fn in_sentences(text: &str, begin: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mark = format!("`{begin}");
    let found = text.split(&mark).skip(1);
    found.filter_map(|rest| Some(format!("{begin}{}", rest.split_once('`')?.0))).collect()
}

/// Commands in sentences, with something in the place of what they leave open.
fn mentioned() -> Vec<Vec<String>> {
    let all = [PAGE, ALERTS].map(|text| in_sentences(text, "outbox "));
    let commands = all.into_iter().flatten().map(|command| {
        let command = command.replace("{{ $labels.queue }}", "orders").replace(" ID", " 1");
        words(command.strip_prefix("outbox ").unwrap())
    });
    commands.collect()
}

/// Commands in sentences are of those that are run.
#[test]
fn no_command_is_only_mentioned() {
    let names = |words: &[String]| {
        let is_name = |word: &&String| {
            word.split('-').all(|part| part.chars().all(char::is_alphabetic) && !part.is_empty())
        };
        let words = words.iter().take_while(is_name);
        words.take(2).cloned().collect::<Vec<_>>()
    };
    let run: Vec<_> = lines().iter().map(|line| names(&line.words)).collect();
    let mentioned: Vec<_> = mentioned().iter().map(|words| names(words)).collect();
    assert!(mentioned.len() > 15, "{mentioned:?}");
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

/// As they stand there, with every word.
async fn the_program_takes_commands_in_sentences(db: &Db) {
    let mut all = mentioned();
    all.sort_unstable();
    all.dedup();
    for words in all {
        let args: Vec<_> = words.iter().map(String::as_str).collect();
        let ran = ended(shop(db, &args)).await;
        assert!([0, 1, 3].contains(&ran.code), "outbox {}: {ran:?}", words.join(" "));
    }
}

fn sql_block(n: usize) -> &'static str {
    PAGE.split("```sql\n").nth(n).unwrap().split("```").next().unwrap()
}

/// Made beforehand, the index is the one that `migrate` would make.
async fn the_index_of_due_rows_can_be_made_beforehand(db: &Db) {
    db.exec("DROP INDEX outbox_due_idx").await;
    ended(shop(db, &["check"])).await.ended(1);
    db.exec(sql_block(2)).await;
    ended(shop(db, &["check"])).await.good();
    ended(shop(db, &["migrate"])).await.good();
}

async fn sql_in_sentences_does_what_the_page_says(db: &Db) {
    plant(db, "orders", 3).await;
    let open = "SELECT count(*) FROM outbox_dlq WHERE status = 'failed'";
    ended(shop(db, &["dlq", "ignore", "1", "2", "--yes"])).await.good();
    ended(shop(db, &["dlq", "replay", "3", "--yes"])).await.good();
    db.exec("UPDATE outbox_dlq SET resolved_at = '2026-11-22 04:00+00' WHERE id = 1").await;
    assert_eq!(db.int(open).await, 0);
    db.exec(in_sentences(PAGE, "UPDATE outbox_dlq ").pop().unwrap()).await;
    assert_eq!(db.texts("SELECT id::text FROM outbox_dlq WHERE status = 'failed'").await, ["2"]);

    let delete = &in_sentences(PAGE, "DELETE FROM outbox ").pop().unwrap();
    let lease = "acquired_at = now(), acquired_token = gen_random_uuid()";
    db.exec(format!("UPDATE outbox SET id = 4711, {lease}")).await;
    db.exec(delete).await;
    assert_eq!(db.rows().await, 1, "somebody holds it");
    db.exec("UPDATE outbox SET acquired_at = NULL, acquired_token = NULL").await;
    db.exec(delete).await;
    assert_eq!(db.rows().await, 0);
}

/// The months by hand: letters stay, the tables pass the check, the commands go on.
async fn the_recipe_makes_months(db: &Db) {
    plant(db, "orders", 6).await;
    let (make, drop) = sql_block(1).split_once("COMMIT;\n").unwrap();
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

outbox_tests::on_postgres!(
    the_recipe_makes_months,
    the_index_of_due_rows_can_be_made_beforehand,
    sql_in_sentences_does_what_the_page_says,
);
outbox_tests::on_both!(
    every_command_does_what_the_page_says,
    the_program_takes_commands_in_sentences,
);
