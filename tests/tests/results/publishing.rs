//! Messages of a handler are published with its ack or not at all.

use std::sync::Arc;

use outbox::retry::NoRetry;
use outbox::{HandlerError, Outcome, subscriber};
use tokio::sync::Notify;

use super::stage::Scene;
use super::*;

on_all!(
    what_is_returned_takes_the_place_of_the_message,
    several_or_none_are_published_as_they_are_returned,
    whatever_is_no_ack_publishes_nothing,
    what_cannot_be_published_fails_the_delivery_and_acks_nothing,
    on_a_lost_lease_nothing_is_published_and_nothing_written,
);

fn queues(scene: &Scene) -> Vec<(&str, &str)> {
    scene.rows.iter().map(|row| (&*row.queue, &*row.payload)).collect()
}

#[subscriber("q", publish = "next")]
async fn one(n: i64) -> i64 {
    n + 1
}

async fn what_is_returned_takes_the_place_of_the_message(stage: &Stage) {
    assert_eq!(queues(&stage.first(one::subscriber(), seven()).await), [("next", "8")]);
}

#[subscriber("q", publish = "next")]
async fn several(n: i64) -> Option<Vec<i64>> {
    (n > 1).then(|| (0..n).collect())
}

async fn several_or_none_are_published_as_they_are_returned(stage: &Stage) {
    stage.first(several::subscriber(), Outgoing::new("q", &1)).await.is_empty();
    let scene = stage.first(several::subscriber(), Outgoing::new("q", &3)).await;
    assert_eq!(queues(&scene), [("next", "0"), ("next", "1"), ("next", "2")]);
}

/// Collects a message, and then ends like this.
fn collecting(result: fn() -> Result<Outcome, HandlerError>) -> Subscriber {
    it(move |ctx| {
        ctx.publisher().collect(Outgoing::new("next", &8))?;
        result()
    })
}

async fn whatever_is_no_ack_publishes_nothing(stage: &Stage) {
    let ends: [fn() -> Result<Outcome, HandlerError>; 5] = [
        || Err(HandlerError::new("told", "no")),
        || Ok(Outcome::Nack),
        || Ok(Outcome::reject("no")),
        || Ok(Outcome::Snooze(HOUR)),
        || panic!("no"),
    ];
    for end in ends {
        let scene = stage.first(collecting(end), seven()).await;
        assert!(scene.rows.iter().all(|row| row.queue == "q"), "{:?}", scene.rows);
        assert_eq!(scene.stats.acked, 0);
        stage.clear().await;
    }
}

async fn what_cannot_be_published_fails_the_delivery_and_acks_nothing(stage: &Stage) {
    let refused: [fn() -> Outgoing; 3] = [
        || Outgoing::new("q".repeat(256), &1),
        || Outgoing::new("", &1),
        || Outgoing::raw("next", vec![0; 16 * 1024 * 1024 + 1]),
    ];
    for make in refused {
        let handler = || {
            it(move |ctx| {
                // The word of the publisher is not listened to.
                let _ = ctx.publisher().collect(Outgoing::new("next", &8));
                ctx.publisher().collect(make())
            })
        };
        let row = stage.first(handler(), seven()).await.row();
        assert_eq!((&*row.queue, row.attempts, row.hours), ("q", 1, 1));
        stage.clear().await;
        let letter = stage.first(handler().retry(NoRetry), seven()).await.letter();
        assert_eq!((&*letter.reason, letter.kind.as_deref()), ("retry_terminal", Some("publish")));
        stage.clear().await;
    }
}

async fn on_a_lost_lease_nothing_is_published_and_nothing_written(stage: &Stage) {
    for failing in [false, true] {
        let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (told, waited) = (Arc::clone(&begun), Arc::clone(&go));
        let slow = Subscriber::new("it", "q", move |ctx: Context| {
            let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
            async move {
                ctx.publisher().collect(Outgoing::new("next", &8))?;
                begun.notify_one();
                go.notified().await;
                if failing { Err(HandlerError::new("told", "no")) } else { Ok(()) }
            }
        });
        let scene = stage.stolen(slow.retry(NoRetry), &told, &waited).await;
        assert_eq!((scene.stats.lease_lost, scene.stats.acked), (1, 0));
        let row = scene.row();
        assert_eq!((&*row.queue, row.attempts, row.deliveries), ("q", 0, 1), "as the thief has it");
        stage.clear().await;
    }
}
