//! The test broker lends transactions of a database in memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use outbox::testing::{Ending, TestBroker};
use outbox::{
    Error, HandlerError, Outgoing, Published, Publisher, State, TimerConflict, Tx, subscriber,
};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

use super::*;

#[subscriber("payments", retry = Constant("1s", max_attempts = 2), publish = "audit")]
async fn book(amount: i64, mut tx: Tx<sqlx::Sqlite>) -> anyhow::Result<i64> {
    sqlx::query("INSERT INTO done (n) VALUES (?)").bind(amount).execute(&mut *tx).await?;
    let receipt = Outgoing::new("receipts", &amount).delay(5 * SECOND).header("k", "v");
    receipt.publish(&mut tx).await?;
    anyhow::ensure!(amount > 0, "nothing to book");
    Ok(-amount)
}

pub async fn pool() -> SqlitePool {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await;
    let pool = pool.unwrap();
    sqlx::query("CREATE TABLE done (n bigint NOT NULL)").execute(&pool).await.unwrap();
    pool
}

async fn booked(pool: &SqlitePool) -> Vec<i64> {
    sqlx::query_scalar("SELECT n FROM done").fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn what_is_written_and_published_counts_with_the_ack() {
    let pool = pool().await;
    let broker = TestBroker::with([book::subscriber()]).transactions(pool.clone());
    broker.publish("payments", &7).await.unwrap();
    assert_eq!(broker.calls("book")[0].ending, Ending::Acked);
    assert_eq!(booked(&pool).await, [7]);
    let rows = broker.rows();
    let queues: Vec<_> = rows.iter().map(|row| (&*row.queue, &row.payload[..])).collect();
    assert_eq!(queues, [("receipts", &b"7"[..]), ("audit", b"-7")], "as in a database");
    assert_eq!(rows[0].headers().unwrap().get("k"), Some("v"));
    let wait = rows[0].next_attempt_at.duration_since(broker.now()).unwrap();
    assert!(wait > 4 * SECOND && wait <= 5 * SECOND, "{wait:?}");
}

#[tokio::test]
async fn an_error_leaves_neither_a_write_nor_a_message() {
    let pool = pool().await;
    let broker = TestBroker::with([book::subscriber()]).transactions(pool.clone());
    broker.publish("payments", &-7).await.unwrap();
    assert_eq!(broker.calls("book")[0].ending, Ending::Retried(SECOND));
    broker.run_until_idle().await;
    assert!(booked(&pool).await.is_empty() && broker.rows().is_empty());
    assert_eq!(broker.dlq_rows().len(), 1);
}

#[tokio::test]
async fn without_a_database_the_broker_says_how_to_give_one() {
    let broker = TestBroker::with([book::subscriber()]);
    let Err(Error::Launch(reasons)) = broker.publish("payments", &7).await else {
        panic!("it was published")
    };
    assert!(reasons[0].contains("`Tx<sqlx::Sqlite>`"), "{reasons:?}");
    assert!(reasons[0].contains(".transactions(pool)"), "{reasons:?}");
}

/// The only connection is taken, and no time is waited for it.
#[tokio::test]
#[should_panic = "tokio's clock is paused"]
async fn a_paused_clock_is_named_where_a_transaction_does_not_begin() {
    let pool = pool().await;
    let _taken = pool.acquire().await.unwrap();
    tokio::time::pause();
    let broker = TestBroker::with([book::subscriber()]).transactions(pool.clone());
    broker.publish("payments", &7).await.unwrap();
}

#[subscriber("elsewhere")]
async fn elsewhere(_: i64, _: Tx<sqlx::Postgres>) {}

#[tokio::test]
async fn a_transaction_that_no_broker_lends_is_refused_with_what_to_do() {
    let without = TestBroker::with([elsewhere::subscriber()]);
    let with = TestBroker::with([elsewhere::subscriber()]).transactions(pool().await);
    for (broker, hints) in [
        (without, &["`App::postgres(pool)`", "`TestBroker::with([..])`"][..]),
        (with, &["only transactions of SQLite are lent"]),
    ] {
        let Err(Error::Launch(reasons)) = broker.publish("elsewhere", &7).await else {
            panic!("it was published")
        };
        assert!(reasons[0].contains("`Tx<sqlx::Postgres>`"), "{reasons:?}");
        assert!(hints.iter().all(|hint| reasons[0].contains(hint)), "{reasons:?}");
    }
}

/// As the code of a service does it.
async fn place(pool: &SqlitePool, amount: i64) -> Published {
    let mut tx = pool.begin().await.unwrap();
    let published = outbox::publish(&mut tx, "payments", &amount).await.unwrap();
    tx.commit().await.unwrap();
    published
}

#[tokio::test]
async fn what_the_code_under_test_publishes_is_delivered_and_is_no_message_of_a_handler() {
    let pool = pool().await;
    let broker = TestBroker::with([book::subscriber()]).transactions(pool.clone());
    broker.publish("payments", &1).await.unwrap();
    place(&pool, 2).await;
    let queues = || broker.rows().iter().map(|row| row.queue.clone()).collect::<Vec<_>>();
    broker.publish("payments", &3).await.unwrap();
    assert_eq!(queues(), ["receipts", "audit", "receipts", "audit"]);
    assert_eq!(booked(&pool).await, [1, 3]);
    broker.advance(Duration::ZERO).await;
    assert_eq!(booked(&pool).await, [1, 3, 2]);
    place(&pool, 4).await;
    broker.run_until_idle().await;
    assert_eq!(booked(&pool).await, [1, 3, 2, 4]);
    let left: i64 =
        sqlx::query_scalar("SELECT count(*) FROM outbox").fetch_one(&pool).await.unwrap();
    assert_eq!(left, 0);
}

#[subscriber("baskets")]
async fn order(amount: i64, State(pool): State<SqlitePool>) {
    place(&pool, amount).await;
}

#[tokio::test]
async fn what_a_handler_publishes_in_a_transaction_of_its_own_is_delivered_in_the_same_run() {
    let pool = pool().await;
    outbox::migrate(&pool).await.unwrap();
    let broker = TestBroker::with([order::subscriber(), book::subscriber()]);
    let broker = broker.state(pool.clone()).transactions(pool.clone());
    let later = |amount: i64| Outgoing::new("baskets", &amount).delay(SECOND);
    broker.publish_with(later(1)).await.unwrap();
    broker.run_until_idle().await;
    assert_eq!(booked(&pool).await, [1]);
    broker.publish_with(later(2)).await.unwrap();
    broker.advance(SECOND).await;
    assert_eq!(booked(&pool).await, [1, 2]);
}

#[subscriber("slow payments")]
async fn book_slowly(amount: i64, mut tx: Tx<sqlx::Sqlite>, State(steal): State<Steal>) {
    let sql = "INSERT INTO done (n) VALUES (?)";
    sqlx::query(sql).bind(amount).execute(&mut *tx).await.unwrap();
    outbox::publish(&mut tx, "receipts", &amount).await.unwrap();
    steal.0();
}

#[derive(Clone)]
struct Steal(Arc<dyn Fn() + Send + Sync>);

/// As in a database: the ack of a row that is another's by then rolls back.
#[tokio::test]
async fn a_lease_that_is_lost_while_its_handler_runs_leaves_neither_a_write_nor_a_message() {
    let pool = pool().await;
    let broker = Arc::new_cyclic(|this: &Weak<TestBroker>| {
        let (this, lost) = (Weak::clone(this), AtomicBool::new(false));
        let steal = move || {
            if !lost.swap(true, Ordering::SeqCst) {
                this.upgrade().unwrap().lose_leases();
            }
        };
        let broker = TestBroker::with([book_slowly::subscriber()]);
        broker.state(Steal(Arc::new(steal))).transactions(pool.clone())
    });
    broker.publish("slow payments", &7).await.unwrap();
    assert_eq!(broker.calls("book_slowly")[0].ending, Ending::Unwritten);
    assert_eq!((booked(&pool).await.len(), broker.rows().len()), (0, 1));
    broker.redeliver().await;
    assert_eq!((booked(&pool).await, broker.rows().len()), (vec![7], 1));
}

#[tokio::test]
#[should_panic = "the database of `.transactions(..)`"]
async fn what_cannot_be_looked_for_is_not_passed_over() {
    let pool = pool().await;
    let broker = TestBroker::with([copied::subscriber()]).transactions(pool.clone());
    pool.close().await;
    broker.run_until_idle().await;
}

#[tokio::test]
async fn a_test_that_holds_the_only_connection_goes_on() {
    let pool = pool().await;
    outbox::migrate(&pool).await.unwrap();
    let broker = TestBroker::with([copied::subscriber()]).transactions(pool.clone());
    let mut tx = pool.begin().await.unwrap();
    outbox::publish(&mut tx, "copied", &7).await.unwrap();
    broker.run_until_idle().await;
    assert!(broker.calls("copied").is_empty(), "it is not committed");
    tx.commit().await.unwrap();
    broker.run_until_idle().await;
    assert_eq!(broker.calls("copied").len(), 1);
}

#[subscriber("copies")]
async fn copies(_: i64, mut tx: Tx<sqlx::Sqlite>) -> Result<(), HandlerError> {
    for n in [1, 2] {
        let copy = Outgoing::new("copied", &n).header("outbox-tracking-ids", "mine");
        copy.publish(&mut tx).await?;
    }
    let sql = "INSERT INTO outbox (queue, payload) VALUES ('copied', x'33')";
    sqlx::query(sql).execute(&mut *tx).await?;
    Ok(())
}

#[subscriber("copied")]
async fn copied(_: i64) {}

#[tokio::test]
async fn messages_with_the_same_headers_and_rows_without_any_arrive_as_they_are() {
    let subscribers = [copies::subscriber(), copied::subscriber()];
    let broker = TestBroker::with(subscribers).transactions(pool().await);
    broker.publish("copies", &7).await.unwrap();
    broker.run_until_idle().await;
    let bodies: Vec<i64> = broker.calls("copied").iter().map(|it| it.json().unwrap()).collect();
    assert_eq!(bodies, [1, 2, 3]);
    assert!(broker.dlq_rows().is_empty());
}

#[tokio::test]
async fn a_crash_leaves_neither_a_write_nor_a_message() {
    let pool = pool().await;
    let broker = TestBroker::with([book::subscriber()]).transactions(pool.clone());
    broker.crash_next(1);
    broker.publish("payments", &7).await.unwrap();
    assert_eq!(broker.calls("book")[0].ending, Ending::Unwritten);
    assert!(booked(&pool).await.is_empty());
    assert_eq!(broker.rows().len(), 1, "the message");
    broker.redeliver().await;
    assert_eq!(broker.calls("book")[1].ending, Ending::Acked);
    assert_eq!((booked(&pool).await, broker.rows().len()), (vec![7], 2));
}

/// What is not positive fails after all that was done.
#[subscriber("moves", retry = NoRetry)]
async fn move_reminder(seconds: i64, mut tx: Tx<sqlx::Sqlite>) -> anyhow::Result<()> {
    let delay = Duration::from_secs(seconds.unsigned_abs());
    let moved = Outgoing::new("reminders", &seconds).timer_id("t").delay(delay);
    moved.on_conflict(TimerConflict::Extend).publish(&mut tx).await?;
    let kept = Outgoing::new("reminders", &seconds).timer_id("kept").delay(delay);
    kept.publish(&mut tx).await?;
    anyhow::ensure!(seconds > 0, "as told");
    Ok(())
}

#[subscriber("cancels", retry = NoRetry)]
async fn cancel_reminder(
    expected: Vec<bool>,
    publisher: Publisher,
    mut tx: Tx<sqlx::Sqlite>,
) -> anyhow::Result<()> {
    for expected in &expected {
        let cancelled = publisher.cancel_timer(&mut tx, "reminders", "t").await?;
        anyhow::ensure!(cancelled == *expected, "{cancelled}");
    }
    let again = Outgoing::new("reminders", &expected.len()).timer_id("t").delay(5 * SECOND);
    anyhow::ensure!(matches!(again.publish(&mut tx).await?, Published::Inserted(_)), "taken");
    anyhow::ensure!(expected.len() > 1, "as told");
    Ok(())
}

/// Timers of a queue that nobody reads, due in ten seconds.
async fn reminded(pool: &SqlitePool) -> TestBroker {
    let broker = TestBroker::with([move_reminder::subscriber(), cancel_reminder::subscriber()]);
    let broker = broker.transactions(pool.clone());
    for name in ["t", "kept"] {
        let reminder = Outgoing::new("reminders", &10).timer_id(name).delay(10 * SECOND);
        broker.publish_with(reminder).await.unwrap();
    }
    broker
}

/// Name, payload and seconds to wait of each timer.
fn timers(broker: &TestBroker) -> Vec<(String, String, u64)> {
    let wait = |row: &outbox::Row| row.next_attempt_at.duration_since(broker.now()).unwrap();
    let text = |row: &outbox::Row| String::from_utf8(row.payload.to_vec()).unwrap();
    let timer = |row: &outbox::Row| (row.timer_id.clone().unwrap(), text(row), wait(row).as_secs());
    broker.rows().iter().filter(|row| row.queue == "reminders").map(timer).collect()
}

fn timer(name: &str, payload: &str, seconds: u64) -> (String, String, u64) {
    (name.into(), payload.into(), seconds)
}

#[tokio::test]
async fn a_timer_is_moved_in_a_transaction_of_the_broker_as_in_any_other() {
    let broker = reminded(&pool().await).await;
    let unmoved = [timer("t", "10", 10), timer("kept", "10", 10)];
    broker.publish("moves", &-60).await.unwrap();
    assert_eq!(timers(&broker), unmoved, "it failed");
    broker.publish("moves", &5).await.unwrap();
    assert_eq!(timers(&broker), unmoved, "it is due earlier");
    broker.publish("moves", &60).await.unwrap();
    assert_eq!(timers(&broker), [timer("t", "60", 60), timer("kept", "10", 10)]);
}

#[tokio::test]
async fn a_timer_is_cancelled_in_a_transaction_of_the_broker_as_in_any_other() {
    let broker = reminded(&pool().await).await;
    broker.publish("cancels", &[true]).await.unwrap();
    assert!(broker.dlq_rows()[0].last_exception.as_deref().unwrap().contains("as told"));
    assert_eq!(timers(&broker), [timer("t", "10", 10), timer("kept", "10", 10)], "it failed");
    broker.crash_next(1);
    broker.publish("cancels", &[true, false]).await.unwrap();
    assert_eq!(timers(&broker)[0], timer("t", "10", 10), "it crashed");
    broker.redeliver().await;
    assert_eq!(timers(&broker), [timer("kept", "10", 10), timer("t", "2", 5)]);
    assert_eq!(broker.dlq_rows().len(), 1);
}
