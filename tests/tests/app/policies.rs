//! What a handler's end means under each ack policy, on real tables.

use outbox::{AckPolicy, Context, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::probe::{gated, with_result};
use outbox_tests::wait::eventually;

use super::*;

on_both!(
    ack_first_deletes_before_the_run_whatever_it_comes_to,
    ack_first_gives_an_unstarted_row_back,
    reject_on_error_asks_no_retry_strategy,
    manual_does_what_was_said,
);

async fn ack_first_deletes_before_the_run_whatever_it_comes_to(db: &Db) {
    let (subscriber, probe) = with_result("it", "q", |_| Err("too late".into()));
    let app = db.app().only([subscriber.ack(AckPolicy::AckFirst)]);
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    probe.start().await;
    assert_eq!((probe.running(), db.rows().await), (1, 0), "it runs, and the row is gone");
    probe.let_end(1);
    running.stop().await.unwrap();
    assert_eq!((probe.finished(), probe.more().await.len()), (1, 0));
    assert_eq!((db.rows().await, db.letters().await), (0, 0));
}

async fn ack_first_gives_an_unstarted_row_back(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    for n in 0..3 {
        db.publish("q", n).await;
    }
    let subscriber = subscriber.ack(AckPolicy::AckFirst).max_workers(1);
    let app = db.app().only([subscriber]).drain_timeout(HOUR);
    let running = app.start().await.unwrap();
    probe.start().await;
    eventually("the others wait", async || db.leased().await == 2).await;
    let stop = tokio::spawn(async move { running.stop().await });
    eventually("they are given back", async || db.leased().await == 0).await;
    probe.let_end(1);
    stop.await.unwrap().unwrap();
    assert_eq!((db.rows().await, db.deliveries().await), (2, 0));
}

async fn reject_on_error_asks_no_retry_strategy(db: &Db) {
    let (subscriber, probe) =
        with_result("it", "q", |run| if run.n == 1 { Err("bad".into()) } else { Ok(()) });
    probe.let_end(10);
    let subscriber = subscriber
        .ack(AckPolicy::RejectOnError)
        .retry(outbox::retry::Constant::new(Duration::from_millis(1)));
    let running = db.app().only([subscriber]).start().await.unwrap();
    db.publish("q", 0).await;
    db.publish("q", 1).await;
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(probe.finished(), 2);
    let letters = "SELECT failure_reason || ' ' || last_exception FROM outbox_dlq";
    let letters = db.texts(letters).await;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].starts_with("rejected ") && letters[0].contains("bad"), "{letters:?}");
}

async fn manual_does_what_was_said(db: &Db) {
    let manual = Subscriber::new("it", "q", |context: Context| async move {
        match context.decode::<String>()?.as_str() {
            "ack" => context.ack(),
            "nack" => context.nack(),
            "reject" => context.reject("not for us"),
            "snooze" => context.snooze(HOUR),
            "error" => return Err("failed".into()),
            _ => false,
        };
        Ok::<_, outbox::BoxError>(())
    });
    let retry = outbox::retry::Constant::new(2 * HOUR).jitter(0.0);
    let app = db.app().only([manual.ack(AckPolicy::Manual).retry(retry)]);
    let running = app.start().await.unwrap();
    let words = ["ack", "nack", "reject", "snooze", "forgetful", "error"];
    db.send_all(words.iter().map(|word| outbox::Outgoing::new("q", word))).await;
    let settled = "SELECT count(*) FROM outbox WHERE next_attempt_at > created_at";
    eventually("all are settled", async || {
        (db.rows().await, db.int(settled).await, db.letters().await) == (3, 3, 2)
    })
    .await;
    running.stop().await.unwrap();
    let text =
        if db.is_postgres() { "convert_from(payload, 'UTF8')" } else { "CAST(payload AS text)" };
    let rows = format!(
        "SELECT {text} || ' ' || attempts_count || ' ' || deliveries_count FROM outbox ORDER BY id"
    );
    assert_eq!(db.texts(rows).await, ["\"nack\" 1 1", "\"snooze\" 0 0", "\"error\" 1 1"]);
    let letters = format!(
        "SELECT {text} || ' ' || failure_reason || ' ' || note || ' ' || \
         coalesce(last_exception, 'none') FROM outbox_dlq ORDER BY original_id"
    );
    assert_eq!(
        db.texts(letters).await,
        [
            "\"reject\" rejected not for us none",
            "\"forgetful\" rejected the handler returned without a word none"
        ]
    );
}
