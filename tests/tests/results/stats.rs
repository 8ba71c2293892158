//! What programs can read of it.

use outbox::Outcome;

use super::*;

on_all!(every_delivery_is_counted_as_what_became_of_it);

async fn every_delivery_is_counted_as_what_became_of_it(stage: &Stage) {
    let judging = it(|ctx| match ctx.decode::<i64>().unwrap() {
        0 => Ok(Outcome::Ack),
        1 => Ok(Outcome::Nack),
        2 | 3 => Ok(Outcome::reject("no")),
        4 => Ok(Outcome::Snooze(HOUR)),
        _ => Err("no"),
    });
    let messages = (0..6).map(|n| Outgoing::new("q", &n));
    let play = stage.play(judging, messages).await;
    play.closed(6).await;
    let one = play.end().await.stats;
    assert_eq!((one.name, &one.queues[..]), ("it", &["q".to_owned()][..]));
    assert_eq!((one.dispatched, one.acked, one.retried, one.snoozed), (6, 1, 2, 1));
    assert_eq!((one.rejected, one.retry_terminal, one.terminal(), one.dead_lettered), (2, 0, 2, 2));
    assert_eq!((one.lease_lost, one.abandoned, one.waited_too_long), (0, 0, 0));
    assert!(one.origin.file.ends_with("main.rs"), "{}", one.origin);
}
