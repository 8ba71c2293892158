//! Why a row waits that somebody has locked.

use outbox::ops::Answer;
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};
use sqlx::Executor;

use super::operator;
use super::why::{read_by_somebody, why};

on_both!(a_table_or_file_that_somebody_has_locked_is_told,);

on_postgres!(
    a_row_that_a_transaction_has_locked_says_which,
    a_row_that_a_transaction_has_deleted_says_which,
    a_row_locked_in_a_savepoint_says_who_may_have_it,
    a_lock_that_is_over_is_not_told,
    a_table_that_nobody_can_read_is_told_within_seconds,
    a_table_that_nobody_can_write_to_is_told_beside_a_lease,
    pauses_that_nobody_can_read_are_told_as_a_locked_table,
    who_waits_for_the_table_is_told_and_for_whom,
    asking_about_a_row_makes_no_claim_pass_it_by,
);

async fn a_table_or_file_that_somebody_has_locked_is_told(db: &Db) {
    let id = db.publish("q", 1).await;
    let lock = db.lock().await;
    let locked = why(db, id).await;
    let Answer::TableLocked { by } = &locked.answers[0] else { panic!("{locked:?}") };
    if db.is_postgres() {
        assert_eq!(by[0].application_name.as_deref(), Some("test"));
    }
    assert!(!locked.answers.iter().any(|one| matches!(one, Answer::Ready { .. })));
    lock.release().await;
    let free = why(db, id).await;
    assert!(!free.answers.iter().any(|one| matches!(one, Answer::TableLocked { .. })), "{free:?}");
}

async fn locked_by(db: &Db, id: i64, sql: &[&'static str], certain: bool) {
    let mut tx = db.pg().begin().await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *tx).await.unwrap();
    for sql in sql {
        tx.execute(*sql).await.unwrap();
    }
    let why = why(db, id).await;
    let Some(Answer::Locked { by, certain: told }) = why.answers.first() else { panic!("{why:?}") };
    assert_eq!(*told, certain, "{why:?}");
    assert!(by.iter().any(|one| one.pid == Some(pid)), "{why:?}");
    assert!(!why.answers.iter().any(|one| matches!(one, Answer::Ready { .. })), "{why:?}");
    tx.rollback().await.unwrap();
}

async fn a_row_that_a_transaction_has_locked_says_which(db: &Db) {
    let id = db.publish("q", 1).await;
    locked_by(db, id, &["SELECT id FROM outbox FOR UPDATE"], true).await;
    locked_by(db, id, &["SELECT id FROM outbox FOR KEY SHARE"], true).await;
}

async fn a_row_that_a_transaction_has_deleted_says_which(db: &Db) {
    let id = db.publish("q", 1).await;
    locked_by(db, id, &["DELETE FROM outbox"], true).await;
}

async fn a_row_locked_in_a_savepoint_says_who_may_have_it(db: &Db) {
    let id = db.publish("q", 1).await;
    let sql = ["SAVEPOINT s", "SELECT id FROM outbox FOR UPDATE", "RELEASE SAVEPOINT s"];
    locked_by(db, id, &sql, false).await;
    // Beside one that publishes, and has opened its transaction before.
    let mut publisher = db.pg().begin().await.unwrap();
    publisher.execute("INSERT INTO outbox (queue, payload) VALUES ('q', '1')").await.unwrap();
    let mut tx = db.pg().begin().await.unwrap();
    for sql in sql {
        tx.execute(sql).await.unwrap();
    }
    let told = why(db, id).await.answers[0].told();
    assert!(told.what.contains("one of these has locked it: pid "), "{told:?}");
    assert!(told.next.contains("pg_terminate_backend(pid)"), "{told:?}");
    tx.rollback().await.unwrap();
    publisher.rollback().await.unwrap();
}

async fn a_lock_that_is_over_is_not_told(db: &Db) {
    let running = read_by_somebody(db, "q").await;
    let id = db.publish("q", 1).await;
    let mut tx = db.pg().begin().await.unwrap();
    tx.execute("SELECT id FROM outbox FOR UPDATE").await.unwrap();
    tx.rollback().await.unwrap();
    let why = why(db, id).await;
    assert!(matches!(why.answers[..], [Answer::Ready { .. }]), "{why:?}");
    drop(running);
}

async fn a_table_that_nobody_can_read_is_told_within_seconds(db: &Db) {
    let id = db.publish("q", 1).await;
    let mut tx = db.pg().begin().await.unwrap();
    tx.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let why = outbox_tests::wait::soon("an answer", why(db, id)).await;
    let [Answer::TableLocked { by }] = &why.answers[..] else { panic!("{why:?}") };
    assert_eq!(by[0].state.as_deref(), Some("idle in transaction"));
    assert!(why.is_known());
    tx.rollback().await.unwrap();
}

/// The row says that a transaction has locked it, which is over. It cannot be asked for a lock.
async fn a_table_that_nobody_can_write_to_is_told_beside_a_lease(db: &Db) {
    let id = db.publish("q", 1).await;
    let mut claim = db.pg().begin().await.unwrap();
    claim.execute("SELECT id FROM outbox FOR UPDATE").await.unwrap();
    let lease = "UPDATE outbox SET acquired_token = gen_random_uuid(), acquired_at = now()";
    claim.execute(lease).await.unwrap();
    claim.commit().await.unwrap();
    assert!(db.int("SELECT xmax::text::bigint FROM outbox").await > 0);
    let mut tx = db.pg().begin().await.unwrap();
    tx.execute("LOCK TABLE outbox IN EXCLUSIVE MODE").await.unwrap();
    let why = why(db, id).await;
    let [Answer::Leased { .. }, Answer::TableLocked { by }] = &why.answers[..] else {
        panic!("{why:?}")
    };
    assert_eq!(by[0].state.as_deref(), Some("idle in transaction"));
    tx.rollback().await.unwrap();
}

/// Each claim reads them.
async fn pauses_that_nobody_can_read_are_told_as_a_locked_table(db: &Db) {
    let id = db.publish("q", 1).await;
    let mut tx = db.pg().begin().await.unwrap();
    let pid = "SELECT pg_backend_pid()";
    let pid: i32 = sqlx::query_scalar(pid).fetch_one(&mut *tx).await.unwrap();
    tx.execute("LOCK TABLE outbox_paused IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let why = outbox_tests::wait::soon("an answer", why(db, id)).await;
    let [Answer::TableLocked { by }] = &why.answers[..] else { panic!("{why:?}") };
    assert_eq!(by.iter().map(|one| one.pid).collect::<Vec<_>>(), [Some(pid)]);
    tx.rollback().await.unwrap();
    // What keeps only writers out is in no claim's way.
    let mut tx = db.pg().begin().await.unwrap();
    tx.execute("LOCK TABLE outbox_paused IN EXCLUSIVE MODE").await.unwrap();
    let answers = self::why(db, id).await.answers;
    assert!(!answers.iter().any(|one| matches!(one, Answer::TableLocked { .. })), "{answers:?}");
    tx.rollback().await.unwrap();
}

/// Everybody waits behind one who waits to change the table.
async fn who_waits_for_the_table_is_told_and_for_whom(db: &Db) {
    let id = db.publish("q", 1).await;
    let pid = "SELECT pg_backend_pid()";
    let mut reader = db.pg().begin().await.unwrap();
    let reads: i32 = sqlx::query_scalar(pid).fetch_one(&mut *reader).await.unwrap();
    reader.execute("SELECT id FROM outbox").await.unwrap();
    let mut changing = db.pg().begin().await.unwrap();
    let changes: i32 = sqlx::query_scalar(pid).fetch_one(&mut *changing).await.unwrap();
    let change = tokio::spawn(async move {
        changing.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE").await.unwrap();
        changing.rollback().await.unwrap();
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'outbox'::regclass AND NOT granted";
    eventually("it waits", async || db.int(waits).await > 0).await;
    let why = outbox_tests::wait::soon("an answer", why(db, id)).await;
    let Answer::TableLocked { by } = &why.answers[0] else { panic!("{why:?}") };
    for pid in [reads, changes] {
        assert!(by.iter().any(|one| one.pid == Some(pid)), "{pid}: {why:?}");
    }
    reader.rollback().await.unwrap();
    change.await.unwrap();
}

/// A row that nobody has locked is read, and not locked to see whether it can be.
async fn asking_about_a_row_makes_no_claim_pass_it_by(db: &Db) {
    let id = db.publish("q", 1).await;
    let locked = "SELECT xmax::text::bigint FROM outbox";
    operator(db).why(id, &Default::default()).await.unwrap();
    assert_eq!(db.int(locked).await, 0);
}
