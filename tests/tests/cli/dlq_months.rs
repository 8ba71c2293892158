//! `dlq partition` and `dlq drop-partitions`, and `dlq replay --dry-run`.

use outbox_tests::db::Db;
use outbox_tests::{on_both, on_postgres};

use crate::plant::{id_of, plant};
use crate::program::{agreed, json, run};

on_postgres!(
    months_are_made_and_dropped_only_when_somebody_agrees,
    a_month_that_nobody_was_asked_about_stays,
    a_table_that_was_never_cut_has_no_months_to_drop,
    a_name_of_a_month_cannot_command_the_terminal,
    who_reads_the_table_is_named_to_whoever_waits_to_cut_it,
);
outbox_tests::cases!(sqlite in sqlite_only: on_sqlite_purge_is_the_way);
on_both!(a_trial_needs_ids_consent_and_a_handler);

async fn months_are_made_and_dropped_only_when_somebody_agrees(db: &Db) {
    plant(db, "a", 3).await;
    db.exec("UPDATE outbox_dlq SET failed_at = now() - interval '100 days', status = 'resolved' WHERE original_id < 3").await;
    let refused = run(db, &["dlq", "partition"]).await;
    assert_eq!(refused.code, 3);
    assert!(refused.err.contains("3 letters, into months"), "{}", refused.err);
    let text = run(db, &["dlq", "partition", "--yes", "--months-ahead", "1"]).await.good();
    assert!(text.starts_with("3 letters moved; made outbox_dlq_2"), "{text}");
    let again = json(db, &["dlq", "partition", "--months-ahead", "1"]).await;
    assert_eq!((again["converted"].as_bool(), again["moved"].as_u64()), (Some(false), Some(0)));
    run(db, &["check"]).await.good();

    let refused = run(db, &["dlq", "drop-partitions", "--older-than", "60d"]).await;
    assert_eq!((refused.code, db.letters().await), (3, 3));
    assert!(refused.err.contains("2 letters, 0 open"), "{}", refused.err);
    let none = run(db, &["dlq", "drop-partitions", "--older-than", "900d"]).await;
    assert_eq!(none.good(), "no month is that old\n");
    let told = json(db, &["dlq", "drop-partitions", "--older-than", "60d", "--yes"]).await;
    assert_eq!(told["months"][0]["letters"], 2);
    assert_eq!((told["months"][0]["dropped"].as_bool(), db.letters().await), (Some(true), 1));

    db.exec("UPDATE outbox_dlq SET failed_at = now() - interval '100 days'").await;
    let refused = run(db, &["dlq", "partition"]).await;
    assert_eq!(refused.code, 3);
    assert!(
        refused.err.contains("1 letter that no month holds into new months"),
        "{}",
        refused.err
    );
    let text = run(db, &["dlq", "partition", "--yes"]).await.good();
    assert!(text.starts_with("1 letter moved; made outbox_dlq_2"), "{text}");
    let kept = run(db, &["dlq", "drop-partitions", "--older-than", "60d", "--yes"]).await;
    assert_eq!(kept.code, 1);
    assert!(kept.out.contains("kept: 1 of 1 letter are open"), "{}", kept.out);
    // Nothing is locked for that.
    let mut reader = db.pg().begin().await.unwrap();
    sqlx::query("SELECT FROM outbox_dlq").execute(&mut *reader).await.unwrap();
    let kept = run(db, &["dlq", "drop-partitions", "--older-than", "60d", "--yes"]).await;
    assert!(kept.code == 1 && kept.out.contains("kept: 1 of 1 letter are open"), "{kept:?}");
    reader.rollback().await.unwrap();
    let gone = ["dlq", "drop-partitions", "--older-than", "60d", "--yes", "--with-open"];
    assert!(run(db, &gone).await.good().contains("dropped: 1 letter, 1 of them open"));
    assert_eq!(db.letters().await, 0);
}

/// Its last open letter is closed while somebody reads the question.
async fn a_month_that_nobody_was_asked_about_stays(db: &Db) {
    plant(db, "a", 2).await;
    db.exec("UPDATE outbox_dlq SET failed_at = now() - interval '100 days' WHERE original_id = 1")
        .await;
    db.exec("UPDATE outbox_dlq SET failed_at = now() - interval '200 days', status = 'resolved' WHERE original_id = 2").await;
    run(db, &["dlq", "partition", "--yes"]).await.good();
    let close = db.exec("UPDATE outbox_dlq SET status = 'resolved'");
    let args = ["dlq", "drop-partitions", "--older-than", "60d"];
    let ran = agreed(db, &args, close).await;
    assert_eq!((ran.code, db.letters().await), (1, 1), "{ran:?}");
    assert!(ran.out.contains("kept: its last open letter was closed meanwhile"), "{ran:?}");
    run(db, &["dlq", "drop-partitions", "--older-than", "60d", "--yes"]).await.good();
    assert_eq!(db.letters().await, 0);
}

async fn a_table_that_was_never_cut_has_no_months_to_drop(db: &Db) {
    plant(db, "a", 1).await;
    let refused = run(db, &["dlq", "drop-partitions", "--older-than", "0s", "--yes"]).await;
    assert!(refused.code == 1 && refused.out.is_empty(), "{refused:?}");
    assert!(refused.err.contains("never cut into months"), "{refused:?}");
    assert!(refused.err.contains("outbox dlq purge"), "{refused:?}");
}

/// Somebody else may have made it.
async fn a_name_of_a_month_cannot_command_the_terminal(db: &Db) {
    run(db, &["dlq", "partition", "--yes"]).await.good();
    let month = "CREATE TABLE \"a\u{1b}[2Jb\" PARTITION OF outbox_dlq \
        FOR VALUES FROM ('2001-01-01 00:00:00+00') TO ('2001-02-01 00:00:00+00')";
    db.exec(month).await;
    let drop = ["dlq", "drop-partitions", "--older-than", "900d"];
    let asked = agreed(db, &drop, async {}).await;
    assert!(asked.out.contains("a\\u{1b}[2Jb: 0 letters"), "{asked:?}");
    assert!(asked.out.contains("a\\u{1b}[2Jb dropped"), "{asked:?}");
    assert!(!asked.out.contains("\u{1b}[2J"), "{asked:?}");
}

async fn who_reads_the_table_is_named_to_whoever_waits_to_cut_it(db: &Db) {
    plant(db, "a", 1).await;
    let old = "UPDATE outbox_dlq SET failed_at = now() - interval '100 days', status = 'resolved'";
    db.exec(old).await;
    let cut = &["dlq", "partition", "--yes"][..];
    let drop = &["dlq", "drop-partitions", "--older-than", "60d", "--yes"][..];
    // The last two lock all months.
    for (args, read) in [(cut, ""), (cut, "_default"), (drop, "_default")] {
        let mut reader = db.pg().begin().await.unwrap();
        let pid = "SELECT pg_backend_pid()";
        let pid: i32 = sqlx::query_scalar(pid).fetch_one(&mut *reader).await.unwrap();
        let read = sqlx::AssertSqlSafe(format!("SELECT FROM outbox_dlq{read}"));
        sqlx::query(read).execute(&mut *reader).await.unwrap();
        let refused = run(db, args).await;
        assert_eq!(refused.code, 1, "{refused:?}");
        let told = format!("the table outbox_dlq is locked: pid {pid},");
        assert!(refused.err.contains(&told), "{refused:?}");
        reader.rollback().await.unwrap();
        run(db, args).await.good();
    }
}

async fn on_sqlite_purge_is_the_way(db: &Db) {
    for args in
        [&["dlq", "partition", "--yes"][..], &["dlq", "drop-partitions", "--older-than", "1d"]]
    {
        let refused = run(db, args).await;
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.err.contains("purge old letters"), "{}", refused.err);
    }
}

async fn a_trial_needs_ids_consent_and_a_handler(db: &Db) {
    plant(db, "orders", 1).await;
    let id = id_of(db, 1).await.to_string();
    assert_eq!(run(db, &["dlq", "replay", "--dry-run", "--queue", "orders"]).await.code, 2);
    let refused = run(db, &["dlq", "replay", "--dry-run", &id]).await;
    assert_eq!(refused.code, 3);
    assert!(refused.err.contains("everything else they do stays done"), "{}", refused.err);
    // The program has no handlers.
    let refused = run(db, &["dlq", "replay", "--dry-run", "--yes", &id]).await;
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("no subscriber of this program reads"), "{}", refused.err);
    assert_eq!(db.rows().await, 0);
}
