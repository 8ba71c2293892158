//! What all commands have in common.

use std::process::Stdio;

use outbox_tests::db::Db;
use outbox_tests::wait::{eventually, soon};
use serde_json::Value;
use tokio::process::Command;

use crate::plant::{id_of, plant};
use crate::program::{Ran, command, ended, run, shop};

/// The names of the commands, each with a line of its own that says what it does.
#[track_caller]
fn commands(help: &str) -> Vec<String> {
    let listed = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let one = |line: &str| {
        let (name, about) = line.trim().split_once("  ").unwrap_or((line, ""));
        let about = about.trim();
        assert!(!about.is_empty() && about.len() <= 72, "{line}");
        assert!(!about.ends_with('.') && !about.contains(". "), "{line}");
        name.to_owned()
    };
    listed.trim().lines().map(one).filter(|name| name != "help").collect()
}

async fn help_says_in_a_line_what_each_command_does(db: &Db) {
    let top = commands(&run(db, &["--help"]).await.good());
    for name in ["run", "migrate", "check", "doctor", "bench", "dlq"] {
        assert!(top.iter().any(|one| one == name), "{top:?}");
    }
    let below = commands(&run(db, &["dlq", "--help"]).await.good());
    let all = top.iter().map(|one| vec![one.as_str()]);
    for path in all.chain(below.iter().map(|one| vec!["dlq", one])) {
        let own = run(db, &[path.as_slice(), &["--help"]].concat()).await.good();
        assert!(own.contains("Usage: outbox") && own.contains("--json"), "{own}");
    }
    run(db, &[]).await.ended(2);
}

async fn help_needs_no_database(db: &Db) {
    for (args, warned) in [(&["--help"][..], false), (&["--version"], false), (&["check"], true)] {
        let mut program = command(db, args);
        program.env_remove("DATABASE_URL").current_dir(std::env::temp_dir());
        let ran = ended(program).await;
        let times = ran.err.matches("`DATABASE_URL` is not set").count();
        assert_eq!(times, usize::from(warned), "{ran:?}");
    }
}

fn told(ran: &Ran) -> String {
    let error: Value = serde_json::from_str(&ran.err).unwrap_or_else(|_| panic!("{ran:?}"));
    assert!(ran.out.is_empty(), "{ran:?}");
    error["error"].as_str().unwrap().to_owned()
}

async fn every_error_is_json_when_that_was_asked_for(db: &Db) {
    let ran = run(db, &["chekc", "--json"]).await;
    assert_eq!(ran.code, 2);
    assert!(told(&ran).starts_with("unrecognized subcommand 'chekc'"), "{ran:?}");
    let ran = run(db, &["--json", "bench"]).await;
    assert_eq!(ran.code, 3);
    assert!(told(&ran).contains("--yes"), "{ran:?}");
    let mut command = command(db, &["check", "--json"]);
    command.env("DATABASE_URL", "mysql://h");
    let ran = ended(command).await;
    assert_eq!(ran.code, 1);
    assert!(told(&ran).contains("DATABASE_URL"), "{ran:?}");
    // Help is none.
    assert!(run(db, &["--json", "--help"]).await.good().contains("Usage"));
}

/// The driver drops it, and goes on without TLS where there is none.
async fn a_mode_of_tls_that_is_none_is_refused_where_it_would_count(db: &Db) {
    let with = async |mode: &str, parameter: &str| {
        let mut stats = command(db, &["stats"]);
        stats.env("PGSSLMODE", mode).env("DATABASE_URL", db.url.clone() + parameter);
        ended(stats).await
    };
    let refused = with("verify_full", "").await;
    assert!(refused.code == 1 && refused.err.contains("`PGSSLMODE` is none of"), "{refused:?}");
    assert_eq!(with("", "").await.code, 1);
    with("Prefer", "").await.good();
    with("verify_full", "?sslmode=disable").await.good();
}

/// The driver drops it, and goes to another server.
async fn a_port_that_is_none_is_refused_where_it_would_count(db: &Db) {
    let (whole, port) = (db.url.clone(), db.pg().connect_options().get_port());
    let without = whole.replacen(&format!(":{port}"), "", 1);
    assert_ne!(without, whole);
    let with = async |value: &str, url: &str| {
        let mut stats = command(db, &["stats"]);
        stats.env("PGPORT", value).env("DATABASE_URL", url);
        ended(stats).await
    };
    let refused = with(&format!("{port} "), &without).await;
    assert!(refused.code == 1 && refused.err.contains("`PGPORT` is not"), "{refused:?}");
    with(&port.to_string(), &without).await.good();
    with("none", &whole).await.good();
    with("none", &format!("{without}?port={port}")).await.good();
}

async fn a_database_that_is_away_is_told_with_the_reason_and_soon(db: &Db) {
    let away = if db.is_postgres() {
        "postgres://postgres:hunter2@127.0.0.1:1/none".to_owned()
    } else {
        db.url.replace("test.db", "other.db")
    };
    for name in ["check", "doctor"] {
        let mut command = command(db, &[name]);
        command.env("DATABASE_URL", &away);
        let ran = soon("it gives up", ended(command)).await;
        assert_eq!(ran.code, 1, "{ran:?}");
        let reason =
            if db.is_postgres() { "127.0.0.1:1: error communicating" } else { "does not exist" };
        assert!(ran.err.contains(reason) && !ran.err.contains("hunter2"), "{ran:?}");
    }
}

/// What makes the file makes no folder.
async fn a_folder_that_is_not_there_is_told(db: &Db) {
    for name in ["migrate", "check", "stats"] {
        let mut command = command(db, &[name]);
        command.env("DATABASE_URL", db.url.replace("test.db", "none/test.db"));
        let ran = ended(command).await;
        assert!(ran.code == 1 && ran.err.contains("the folder "), "{name}: {ran:?}");
        assert!(!ran.err.contains("`outbox migrate` makes it"), "{name}: {ran:?}");
    }
}

async fn tables_that_are_not_there_are_told_with_what_makes_them(db: &Db) {
    for table in ["outbox", "outbox_dlq"] {
        db.exec(format!("DROP TABLE {table}")).await;
    }
    let ran = run(db, &["bench", "--messages", "1", "--yes"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("with `outbox migrate`"), "{ran:?}");
    assert!(!ran.err.contains("at line"), "{ran:?}");
    for args in [["stats"].as_slice(), &["queues"], &["peek", "q"], &["dlq", "list"]] {
        let ran = run(db, args).await;
        assert!(ran.code == 1 && ran.err.contains("with `outbox migrate`"), "{args:?}: {ran:?}");
        assert!(!ran.err.contains(" at line "), "{args:?}: {ran:?}");
    }
}

async fn a_reader_that_closes_the_pipe_is_no_error(db: &Db) {
    for args in [
        ["migrate", "--print"].as_slice(),
        &["check"],
        &["--help"],
        &["doctor", "--json", "--notification", "30s"],
    ] {
        let mut child = command(db, args);
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = soon("it ends", child.wait_with_output()).await.unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}

/// On a terminal, which `script` makes.
async fn colours_are_for_terminals_and_not_where_they_are_unwanted(db: &Db) {
    db.exec("DROP INDEX outbox_due_idx").await;
    let plain = shop(db, &["doctor"]);
    let line = format!("{} doctor", plain.as_std().get_program().display());
    let on_terminal = || {
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("DATABASE_URL", &db.url);
        command.env("OUTBOX_DLQ_TABLE", "outbox_dlq").stdin(Stdio::null()).env_remove("NO_COLOR");
        command
    };
    let bold = "\u{1b}[1mwarning";
    assert!(ended(on_terminal()).await.out.contains(bold));
    let mut without = on_terminal();
    without.env("NO_COLOR", "1");
    assert!(!ended(without).await.out.contains(bold));
    assert!(!ended(plain).await.out.contains('\u{1b}'));
}

/// And not as a bar of nothing.
async fn what_takes_long_moves_on_a_terminal(db: &Db) {
    let id = db.publish("orders", 1).await;
    let lease = if db.is_postgres() {
        "acquired_at = clock_timestamp(), acquired_token = gen_random_uuid()"
    } else {
        "acquired_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), \
         acquired_token = randomblob(16)"
    };
    db.exec(format!("UPDATE outbox SET {lease}")).await;
    plant(db, "books", 1).await;
    let letter = id_of(db, 1).await;
    let (outbox, shop) = (command(db, &[]), shop(db, &[]));
    for (program, args, moves) in [
        (&outbox, "stats --over 1s", "sampling"),
        (&outbox, &*format!("why {id} --watch-lease 1s"), "looking"),
        (&outbox, "bench --messages 3000 --yes", "measuring"),
        // Of the one letter nothing else says so.
        (&shop, &*format!("dlq replay --dry-run --yes {letter}"), "letters"),
        (&outbox, "dlq purge --all --status failed --yes", "letters"),
    ] {
        let line = format!("{} {args}", program.as_std().get_program().display());
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("DATABASE_URL", &db.url);
        command.env("OUTBOX_DLQ_TABLE", "outbox_dlq").stdin(Stdio::null());
        let told = ended(command).await;
        assert!(told.out.contains(moves) && !told.out.contains("0/0"), "{told:?}");
    }
}

async fn a_program_with_handlers_runs_them_by_the_command_run(db: &Db) {
    let order = serde_json::json!({ "id": 7, "amount": 2 });
    // The document comes when the run has ended.
    for (args, document) in [(&["run"][..], ""), (&["run", "--json"], "{\"ended\":true}\n")] {
        db.send(outbox::Outgoing::new("orders", &order)).await;
        let mut child = shop(db, args);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the order is handled", async || db.rows().await == 0).await;
        let id = child.id().expect("it runs").to_string();
        let kill = Command::new("/bin/sh").args(["-c", &format!("kill -TERM {id}")]).status();
        assert!(kill.await.unwrap().success());
        let output = soon("it drains", child.wait_with_output()).await.unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(told, format!("confirmed 7 of 2\n{document}"));
    }
}

async fn without_handlers_there_is_nothing_to_run(db: &Db) {
    let ran = run(db, &["run"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("no subscriber is registered"), "{ran:?}");
}

outbox_tests::on_both!(
    help_says_in_a_line_what_each_command_does,
    help_needs_no_database,
    every_error_is_json_when_that_was_asked_for,
    a_database_that_is_away_is_told_with_the_reason_and_soon,
    tables_that_are_not_there_are_told_with_what_makes_them,
    a_reader_that_closes_the_pipe_is_no_error,
    colours_are_for_terminals_and_not_where_they_are_unwanted,
    what_takes_long_moves_on_a_terminal,
    a_program_with_handlers_runs_them_by_the_command_run,
    without_handlers_there_is_nothing_to_run,
);

outbox_tests::cases!(sqlite in sqlite_only: a_folder_that_is_not_there_is_told);
outbox_tests::on_postgres!(
    a_mode_of_tls_that_is_none_is_refused_where_it_would_count,
    a_port_that_is_none_is_refused_where_it_would_count,
);
