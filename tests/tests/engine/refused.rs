//! A claim that the server has refused took nothing, so nothing is given back for it. And no
//! row has what makes a claim fail.

use outbox_tests::backend::unique;
use outbox_tests::capture;
use outbox_tests::db::Db;
use outbox_tests::probe::{self, with_result};
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};

use super::free;
use outbox::dlq::Filter;
use outbox::ops::{PeekOptions, WhyOptions};
use outbox::retry::{Constant, NoRetry};
use outbox::{Context, Outgoing, Subscriber};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_postgres!(only_a_claim_whose_fate_is_unknown_is_given_back);
on_both!(
    a_published_message_that_the_database_refuses_is_a_failure_of_its_handler,
    a_published_message_that_is_refused_at_the_commit_is_one_too,
    a_table_of_pauses_that_somebody_drops_stops_no_app_for_long,
);

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
    replies_are_refused(db, "no replies here").await;
}

/// By a constraint that is deferred.
async fn a_published_message_that_is_refused_at_the_commit_is_one_too(db: &Db) {
    db.exec("CREATE TABLE known (n bigint PRIMARY KEY)").await;
    db.exec("CREATE TABLE kept (n bigint REFERENCES known DEFERRABLE INITIALLY DEFERRED)").await;
    if db.is_postgres() {
        db.exec(
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO kept VALUES (1); RETURN NULL; END $$",
        )
        .await;
        db.exec(
            "CREATE TRIGGER keep AFTER INSERT ON outbox FOR EACH ROW
             WHEN (NEW.queue = 'replies') EXECUTE FUNCTION keep()",
        )
        .await;
    } else {
        db.exec(
            "CREATE TRIGGER keep AFTER INSERT ON outbox WHEN NEW.queue = 'replies'
             BEGIN INSERT INTO kept VALUES (1); END",
        )
        .await;
    }
    replies_are_refused(db, "constraint").await;
}

/// Of two messages one publishes to `replies`, and is a letter in the end, which says why.
async fn replies_are_refused(db: &Db, why: &str) {
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
    assert!(letters[0].to_lowercase().contains(why), "{letters:?}");
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
    let last = db.publish("q", 9).await;
    db.exec(format!(
        "UPDATE outbox SET acquired_token = x'616263', acquired_at = 1 WHERE id = {last}"
    ))
    .await;
    db.exec("INSERT INTO outbox_paused VALUES (CAST(x'61ff' AS TEXT), 1, CAST(x'62ff' AS TEXT))")
        .await;
    // Nor does it keep operators from looking, as long as it waits,
    let operator = db.app().operator().unwrap();
    assert!(!operator.pause(&["p"], None).await.unwrap()[0].was_paused);
    assert_eq!(operator.paused().await.unwrap().len(), 2);
    let waiting = operator.peek("q", &PeekOptions::default()).await.unwrap();
    assert_eq!(waiting.len(), 5);
    for row in waiting {
        operator.why(row.id, &WhyOptions::default()).await.unwrap();
    }
    db.exec("UPDATE outbox SET acquired_token = NULL, acquired_at = NULL").await;
    let (subscriber, probe) =
        with_result("q", "q", |run| if run.n < 9 { Err("no".into()) } else { Ok(()) });
    probe.let_end(100);
    let running = db.app().only([subscriber.retry(NoRetry)]).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    // and when it is a dead letter.
    db.exec("UPDATE outbox_dlq SET last_exception = CAST(x'62ff' AS TEXT)").await;
    let letters = operator.dead_letters();
    let page = letters.list(&Filter::new(), None, 10).await.unwrap();
    assert_eq!(page.letters.len(), 4);
    for letter in &page.letters {
        letters.show(letter.id).await.unwrap().unwrap();
    }
    assert_eq!(letters.groups(&Filter::new(), 10).await.unwrap().letters, 4);
    let report = db.app().doctor().unwrap().examine().await.unwrap();
    assert!(report.checks.iter().all(|check| check.said.is_some()), "{report:#?}");
    db.close().await;
}

/// As a tool may propose that owns the tables of another service.
async fn a_table_of_pauses_that_somebody_drops_stops_no_app_for_long(db: &Db) {
    capture::start();
    let name: &'static str = unique("pauses").leak();
    let (subscriber, probe) = probe::free(name, "q");
    let often = Duration::from_millis(20);
    let running =
        db.app().only([subscriber.min_poll(often).max_poll(often)]).start().await.unwrap();
    db.publish("q", 1).await;
    probe.start().await;
    db.exec("DROP TABLE outbox_paused").await;
    db.publish("q", 2).await;
    probe.start().await;
    let of = |line: &capture::Line, what: &str| {
        line.says("message", what) && line.says("subscriber", name)
    };
    let count = |what: &str| capture::count(|line: &capture::Line| of(line, what));
    assert!(count("claiming failed") > 0);
    eventually("it is told", async || count("claims succeed again") > 0).await;
    db.drained().await;
    running.stop().await.unwrap();
}
