//! `doctor`, in a program with handlers and in one without.

use outbox::Outgoing;
use outbox_tests::db::Db;
use serde_json::json;
use tokio::process::Command;

use crate::program::{ended, run, shop};

const URL: &str = "DATABASE_URL";

/// A busy machine is not what it looks for.
const PATIENT: [&str; 2] = ["--notification", "30s"];

fn doctor(db: &Db, args: &[&str]) -> Command {
    shop(db, &[&["doctor"], &PATIENT[..], args].concat())
}

async fn what_this_program_cannot_read_keeps_it_from_being_deployed(db: &Db) {
    db.send(Outgoing::new("orders", &json!({ "id": 7 }))).await;
    let told = ended(doctor(db, &[])).await.ended(1);
    let first = "error (payloads): 1 row of queue `orders` cannot be read by the subscriber \
                 `confirm` of this program: the payload is not the expected JSON: missing field \
                 `amount` (ids 1)\n  why: this program would fail them";
    assert!(told.contains(first), "{told}");
    assert!(told.contains("\n  do:  ") && told.contains("1 errors, 0 warnings"), "{told}");
    assert!(!told.contains("confirmed"), "the handler ran: {told}");

    let ran = ended(doctor(db, &["--json"])).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let report = ran.json();
    assert_eq!((&report["errors"], &report["warnings"]), (&json!(1), &json!(0)));
    let finding = &report["findings"][0];
    assert_eq!((&finding["check"], &finding["severity"]), (&json!("payloads"), &json!("error")));
    for part in ["what", "why", "mend"] {
        assert!(!finding[part].as_str().unwrap().is_empty(), "{finding}");
    }
    assert!(report["checks"].as_array().unwrap().iter().all(|one| one["said"].is_string()));
}

async fn warnings_are_errors_only_when_it_is_strict(db: &Db) {
    db.publish("order", 1).await;
    let told = ended(doctor(db, &[])).await.good();
    assert!(told.contains("warning (queues)") && told.contains("did you mean `orders`"), "{told}");
    ended(doctor(db, &["--strict"])).await.ended(1);
    db.exec("DELETE FROM outbox").await;
    ended(doctor(db, &["--strict"])).await.good();
}

async fn without_handlers_it_says_where_to_ask(db: &Db) {
    let told = run(db, &[&["doctor"][..], &PATIENT].concat()).await.good();
    assert!(told.contains("warning (queues): this program has no handlers"), "{told}");
    run(db, &[&["doctor", "--strict"][..], &PATIENT].concat()).await.ended(1);
}

async fn a_database_that_nobody_has_named_is_a_warning(db: &Db) {
    let folder = db.url.strip_prefix("sqlite:").unwrap().strip_suffix("test.db").unwrap();
    let in_folder = async |url: Option<&str>, args: &[&str]| {
        let mut command = shop(db, args);
        command.current_dir(folder).env_remove("DATABASE_URL").envs(url.map(|url| (URL, url)));
        ended(command).await
    };
    in_folder(None, &["migrate"]).await.good();
    in_folder(None, &["doctor"]).await.good();
    let told = in_folder(None, &["doctor", "--strict"]).await.ended(1);
    assert!(told.contains("warning (database): `DATABASE_URL` is not set"), "{told}");
    let report = in_folder(None, &["doctor", "--json"]).await.json();
    assert_eq!(
        (&report["warnings"], &report["findings"][0]["check"]),
        (&json!(1), &json!("database"))
    );
    in_folder(Some("sqlite:outbox.db"), &["doctor", "--strict"]).await.good();
}

async fn a_name_of_a_queue_cannot_command_the_terminal(db: &Db) {
    db.publish("a\u{1b}[2Jb", 1).await;
    let told = ended(doctor(db, &[])).await.good();
    assert!(told.contains("`a\\u{1b}[2Jb`") && !told.contains('\u{1b}'), "{told:?}");
}

async fn its_limits_are_options(db: &Db) {
    for id in 0..3 {
        db.send(Outgoing::new("orders", &json!({ "id": id, "amount": 1 }))).await;
    }
    let told = ended(doctor(db, &["--limit", "2"])).await.good();
    assert!(told.contains("only the oldest 2 of 3 rows were tried"), "{told}");
    let told = ended(doctor(db, &["--limit", "3"])).await.good();
    assert!(!told.contains("were tried"), "{told}");
    // What comes behind is no queue of this program.
    db.send_all((0..5).map(|n| Outgoing::new("audit", &n))).await;
    let told = ended(doctor(db, &["--limit", "3"])).await.good();
    assert!(!told.contains("were tried"), "{told}");
    let told = ended(doctor(db, &["--limit", "2"])).await.good();
    assert!(told.contains("only the oldest 2 of 8 rows were tried"), "{told}");
    if db.is_postgres() {
        let many = ["--processes", "1000"];
        assert!(ended(doctor(db, &many)).await.ended(1).contains("error (connections)"));
    }
    assert!(ended(doctor(db, &["--snapshot-age", "soon"])).await.code == 2);
}

outbox_tests::on_both!(
    what_this_program_cannot_read_keeps_it_from_being_deployed,
    warnings_are_errors_only_when_it_is_strict,
    without_handlers_it_says_where_to_ask,
    a_name_of_a_queue_cannot_command_the_terminal,
    its_limits_are_options,
);

outbox_tests::cases!(sqlite in sqlite_only: a_database_that_nobody_has_named_is_a_warning);
