//! A claim that the server has refused took nothing, so nothing is given back for it. And no
//! row has what makes a claim fail.

use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};

use super::free;
use outbox::retry::Constant;
use outbox::{Context, Outgoing, Subscriber};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_postgres!(only_a_claim_whose_fate_is_unknown_is_given_back);
on_both!(a_published_message_that_the_database_refuses_is_a_failure_of_its_handler);

/// Whatever was rolled back, sequences keep count.
const COUNTED: &str = "CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_query() LIKE '%as if it had taken nothing%' THEN
            PERFORM nextval('given_back');
            RETURN NULL;
        END IF;
        PERFORM nextval('claims');
        RAISE SQLSTATE '{code}';
    END $$";

/// A deadlock, a lock that is held, a serialization that failed, a server that recovers;
/// and one that ends the session, which tells nothing of what it did before.
async fn only_a_claim_whose_fate_is_unknown_is_given_back(db: &Db) {
    db.exec("CREATE SEQUENCE claims").await;
    db.exec("CREATE SEQUENCE given_back").await;
    let count = async |name: &str| {
        let count = format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {name}");
        db.int(count).await
    };
    let (subscriber, probe) = free("q");
    for code in ["40P01", "55P03", "40001", "25006", "57P01"] {
        db.exec("ALTER SEQUENCE claims RESTART").await;
        db.exec("ALTER SEQUENCE given_back RESTART").await;
        db.exec(COUNTED.replace("{code}", code)).await;
        db.exec("CREATE TRIGGER counted BEFORE UPDATE ON outbox EXECUTE FUNCTION counted()").await;
        let app = db.app().only([subscriber.clone()]);
        let running = app.start().await.unwrap();
        db.publish("q", 1).await;
        eventually("it is tried again", async || count("claims").await > 2).await;
        // An end waits for what is still to be given back.
        running.stop().await.unwrap();
        assert_eq!(count("given_back").await > 0, code == "57P01", "{code}");
        db.exec("DROP FUNCTION counted CASCADE").await;
        let running = db.app().only([subscriber.clone()]).start().await.unwrap();
        assert_eq!(probe.start().await.deliveries, 1);
        db.drained().await;
        running.stop().await.unwrap();
    }
}

/// Such as one to a queue that a trigger does not know.
async fn a_published_message_that_the_database_refuses_is_a_failure_of_its_handler(db: &Db) {
    if db.is_postgres() {
        db.exec(
            "CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no replies here'; END $$",
        )
        .await;
        db.exec(
            "CREATE TRIGGER refused BEFORE INSERT ON outbox FOR EACH ROW
             WHEN (NEW.queue = 'replies') EXECUTE FUNCTION refused()",
        )
        .await;
    } else {
        db.exec(
            "CREATE TRIGGER refused BEFORE INSERT ON outbox WHEN NEW.queue = 'replies'
             BEGIN SELECT RAISE(ABORT, 'no replies here'); END",
        )
        .await;
    }
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let replies = Subscriber::new("it", "q", move |ctx: Context| {
        count.fetch_add(1, Ordering::SeqCst);
        let n: i64 = ctx.decode().unwrap();
        async move { ctx.publisher().collect(Outgoing::new(["replies", "others"][n as usize], &n)) }
    });
    let again = Constant::new(Duration::from_millis(10)).max_attempts(2);
    let running = db.app().only([replies.retry(again).max_deliveries(9)]).start().await.unwrap();
    db.send_all((0..2_i64).map(|n| Outgoing::new("q", &n))).await;
    let left = "SELECT count(*) FROM outbox WHERE queue = 'q'";
    eventually("both are settled", async || db.int(left).await == 0).await;
    running.stop().await.unwrap();
    assert_eq!((runs.load(Ordering::SeqCst), db.rows().await), (3, 1));
    let letters = "SELECT error_kind || ' ' || last_exception FROM outbox_dlq";
    let letters = db.texts(letters).await;
    assert!(letters.len() == 1 && letters[0].starts_with("publish "), "{letters:?}");
    assert!(letters[0].contains("no replies here"), "{letters:?}");
}

/// Which PostgreSQL would refuse.
#[tokio::test]
async fn what_other_writers_leave_in_a_row_stops_no_queue() {
    let db = Db::sqlite().await.unwrap();
    let left = [
        "attempts_count = -1",
        "deliveries_count = -2",
        "headers = CAST(x'7bff7d' AS TEXT)",
        "timer_id = CAST(x'61ff' AS TEXT)",
    ];
    for (n, left) in left.into_iter().enumerate() {
        let id = db.publish("q", n as i64).await;
        db.exec(format!("UPDATE outbox SET {left} WHERE id = {id}")).await;
    }
    db.publish("q", 9).await;
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    probe.start().await;
    db.drained().await;
    running.stop().await.unwrap();
    assert!(probe.finished() >= 4, "those whose headers are none are dead letters");
    db.close().await;
}
