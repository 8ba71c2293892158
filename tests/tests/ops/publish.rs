//! Messages that an operator publishes, and timers that he cancels.

use outbox::ops::{CancelledTimer, Operator};
use outbox::{Outgoing, Published, TimerConflict};
use outbox_tests::db::Db;
use outbox_tests::probe::free;
use outbox_tests::{on_both, on_postgres};

use super::{lease, operator};

on_both!(
    a_message_is_published_in_a_transaction_of_its_own,
    whoever_sleeps_is_woken_by_it,
    a_refused_message_leaves_nothing_behind,
    a_timer_is_cancelled_unless_a_claim_holds_it,
);

on_postgres!(
    a_timer_that_is_given_back_meanwhile_is_cancelled,
    a_timer_that_is_given_back_while_its_row_is_waited_for_is_cancelled,
    a_timer_that_changes_hands_all_the_time_is_told_as_neither,
);

async fn a_message_is_published_in_a_transaction_of_its_own(db: &Db) {
    let operator = operator(db);
    let timer = || Outgoing::new("q", &7).timer_id("t");
    let Published::Inserted(id) = operator.publish(timer()).await.unwrap() else { panic!() };
    assert_eq!(db.int(format!("SELECT count(*) FROM outbox WHERE id = {id}")).await, 1);
    assert_eq!(operator.publish(timer()).await.unwrap(), Published::Duplicate);
    let extend = timer().on_conflict(TimerConflict::Extend);
    assert_eq!(operator.publish(extend).await.unwrap(), Published::Extended(id));
    assert_eq!(db.rows().await, 1);
}

async fn whoever_sleeps_is_woken_by_it(db: &Db) {
    let (subscriber, probe) = free("it", "q");
    let hour = std::time::Duration::from_secs(3600);
    let app = db.app().only([subscriber.min_poll(hour).max_poll(hour)]);
    let running = app.start().await.unwrap();
    probe.falls_asleep(db, "q").await;
    operator(db).publish(Outgoing::new("q", &1)).await.unwrap();
    assert_eq!(probe.start().await.n, 1);
    running.stop().await.unwrap();
}

async fn a_refused_message_leaves_nothing_behind(db: &Db) {
    for refused in [
        Outgoing::new("", &7),
        Outgoing::new("q", &7).header("a", "\0"),
        Outgoing::raw("q", vec![0; (16 << 20) + 1]),
    ] {
        let error = operator(db).publish(refused).await.unwrap_err();
        assert!(matches!(error, outbox::Error::Publish(_)), "{error}");
    }
    assert_eq!(db.rows().await, 0);
}

async fn a_timer_is_cancelled_unless_a_claim_holds_it(db: &Db) {
    let operator = operator(db);
    db.send(Outgoing::new("q", &1).timer_id("free")).await;
    db.send(Outgoing::new("other", &1).timer_id("free")).await;
    let id = db.send(Outgoing::new("q", &2).timer_id("held")).await.id().unwrap();
    lease(db, id, 1).await;
    // Of a process that died: no claim has taken the row since.
    let old = db.send(Outgoing::new("q", &3).timer_id("left")).await.id().unwrap();
    lease(db, old, 3600).await;
    let cancel = async |name| operator.cancel_timer("q", name).await.unwrap();
    assert_eq!(cancel("free").await, CancelledTimer::Cancelled);
    assert_eq!(cancel("free").await, CancelledTimer::Absent);
    assert_eq!(cancel("held").await, CancelledTimer::Leased { id });
    assert_eq!(cancel("left").await, CancelledTimer::Leased { id: old });
    let extend = Outgoing::new("q", &3).timer_id("left").on_conflict(TimerConflict::Extend);
    assert_eq!(db.send(extend).await, Published::Duplicate);
    assert_eq!(db.rows().await, 3);
    assert!(operator.cancel_timer("q", "").await.is_err());
}

/// Whatever the isolation of the operator's sessions is.
async fn a_timer_that_is_given_back_while_its_row_is_waited_for_is_cancelled(db: &Db) {
    let options = (*db.pg().connect_options()).clone();
    let options = options.options([("default_transaction_isolation", "serializable")]);
    let operator = Operator::postgres(sqlx::PgPool::connect_lazy_with(options), db.names.clone());
    let id = db.send(Outgoing::new("q", &1).timer_id("t")).await.id().unwrap();
    let mut tx = db.pg().begin().await.unwrap();
    let moved = format!("UPDATE outbox SET attempts_count = 1 WHERE id = {id}");
    sqlx::query(sqlx::AssertSqlSafe(moved)).execute(&mut *tx).await.unwrap();
    let commits = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event_type = 'Lock'";
        outbox_tests::wait::eventually("it waits", async || db.int(waits).await == 1).await;
        tx.commit().await.unwrap();
    };
    let (cancelled, ()) = tokio::join!(operator.cancel_timer("q", "t"), commits);
    assert_eq!(cancelled.unwrap(), CancelledTimer::Cancelled);
}

/// Whenever somebody has tried to delete rows, the owner does this.
async fn after_a_deletion(db: &Db, happens: &str) {
    db.exec(format!(
        "CREATE FUNCTION meanwhile() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
         $$ BEGIN {happens}; RETURN NULL; END $$"
    ))
    .await;
    db.exec("CREATE TRIGGER meanwhile AFTER DELETE ON outbox EXECUTE FUNCTION meanwhile()").await;
}

/// Between the look for a free row and the look for a row that is held.
async fn a_timer_that_is_given_back_meanwhile_is_cancelled(db: &Db) {
    let id = db.send(Outgoing::new("q", &1).timer_id("t")).await.id().unwrap();
    lease(db, id, 1).await;
    after_a_deletion(db, "UPDATE outbox SET acquired_token = NULL, acquired_at = NULL").await;
    let cancelled = operator(db).cancel_timer("q", "t").await.unwrap();
    assert_eq!(cancelled, CancelledTimer::Cancelled);
    assert_eq!(db.rows().await, 0);
}

/// It hides from the deletion and is free again afterwards.
async fn a_timer_that_changes_hands_all_the_time_is_told_as_neither(db: &Db) {
    db.send(Outgoing::new("q", &1).timer_id("t")).await;
    db.exec("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        .await;
    db.exec("CREATE TRIGGER no BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION no()").await;
    let told = operator(db).cancel_timer("q", "t").await.unwrap_err().to_string();
    assert!(told.contains("claims take the timer and give it back all the time"), "{told}");
    assert_eq!(db.rows().await, 1);
}
