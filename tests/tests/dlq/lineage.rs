//! A message that fails again and again knows where it came from.

use outbox::dlq::{Filter, Replay, Status};
use outbox::{Context, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_both;

use super::letters;

on_both!(lineage_survives_failures_and_replays, a_replay_wakes_a_consumer_that_sleeps);

async fn lineage_survives_failures_and_replays(db: &Db) {
    let message =
        outbox::Outgoing::new("q", &7).header("tenant", "acme").timer_id("t").correlation_id("c");
    let first = db.send(message).await.id().unwrap();
    let fails = || {
        Subscriber::new("fails", "q", |ctx: Context| async move {
            Err::<(), String>(format!(
                "run {} of {:?}",
                ctx.headers().replays(),
                ctx.headers().original_id()
            ))
        })
        .retry(outbox::retry::NoRetry)
    };
    let running = db.app().only([fails()]).start().await.unwrap();
    db.drained().await;
    for round in 1..=3 {
        let open = Filter::new().status(Status::Failed);
        let before = letters(db).list(&open, None, 10).await.unwrap().letters;
        assert_eq!((before.len(), before[0].replays), (1, round - 1), "{before:?}");
        let report = letters(db).replay(&open, &Replay::new()).await.unwrap();
        assert_eq!(report.replayed, 1);
        db.drained().await;
        let after = letters(db).list(&open, None, 10).await.unwrap().letters;
        assert_eq!((after.len(), after[0].replays), (1, round));
        let opened = letters(db).show(after[0].id).await.unwrap().unwrap();
        let headers = opened.headers().unwrap();
        assert_eq!(headers.original_id(), Some(first), "that of the first publish");
        assert_eq!(headers.replays(), round);
        assert_eq!(headers.letter_id(), Some(before[0].id));
        assert_eq!(headers.get("tenant"), Some("acme"));
        assert_eq!(headers.correlation_id(), Some("c"));
        assert_eq!(opened.letter.timer_id.as_deref(), Some("t"));
        // The way back: the letter before knows the row that failed.
        let link = letters(db).show(before[0].id).await.unwrap().unwrap().letter.replayed_id;
        assert_eq!(link, Some(after[0].original_id));
        let said = opened.letter.last_exception.unwrap();
        assert!(said.contains(&format!("run {round} of Some({first})")), "{said}");
    }
    let texts = if db.is_postgres() {
        "SELECT count(*) FROM outbox_dlq WHERE jsonb_typeof(headers -> 'outbox-replays') = 'string' \
            AND jsonb_typeof(headers -> 'outbox-original-id') = 'string' \
            AND jsonb_typeof(headers -> 'outbox-letter') = 'string'"
    } else {
        "SELECT count(*) FROM outbox_dlq WHERE json_type(headers, '$.\"outbox-replays\"') = 'text' \
            AND json_type(headers, '$.\"outbox-original-id\"') = 'text' \
            AND json_type(headers, '$.\"outbox-letter\"') = 'text'"
    };
    assert_eq!(db.int(texts).await, 3);
    running.stop().await.unwrap();
}

/// With a poll as long as any test, only a wake makes it look.
async fn a_replay_wakes_a_consumer_that_sleeps(db: &Db) {
    super::plant(db, "q", 3).await;
    let hour = std::time::Duration::from_secs(3600);
    let (subscriber, probe) = outbox_tests::probe::free("woken", "q");
    let subscriber = subscriber.min_poll(hour).max_poll(hour);
    let running = db.app().only([subscriber]).start().await.unwrap();
    probe.falls_asleep(db, "q").await;
    letters(db).replay(&Filter::new(), &Replay::new()).await.unwrap();
    assert_eq!(probe.starts(3).await.len(), 3);
    running.stop().await.unwrap();
}
