//! Batches: a result for each message.

use outbox::retry::NoRetry;
use outbox::{BatchOutcome, Outcome, subscriber};

use super::*;

on_all!(
    each_message_has_its_own_ending,
    an_error_for_all_is_that_of_each,
    a_message_that_does_not_decode_fails_alone,
);

fn numbers(n: std::ops::Range<i64>) -> impl Iterator<Item = Outgoing> {
    n.map(|n| Outgoing::new("q", &n))
}

async fn each_message_has_its_own_ending(stage: &Stage) {
    let judging = Subscriber::batches("it", "q", 10, |batch: Vec<Context>| async move {
        let mut outcome = BatchOutcome::default();
        for ctx in &batch {
            match ctx.decode::<i64>().unwrap() {
                0 => {}
                1 => outcome.set(ctx, Err::<(), _>("one")),
                2 => outcome.set(ctx, Outcome::Snooze(2 * HOUR)),
                n => outcome.set(ctx, Outcome::reject(n.to_string())),
            }
        }
        outcome
    });
    let judging = judging.retry(Constant::new(HOUR).jitter(0.0));
    let play = stage.play(judging, numbers(0..4)).await;
    play.closed(4).await;
    let scene = play.end().await;
    let rows = scene.rows.iter().map(|row| (&*row.payload, row.attempts, row.hours));
    assert_eq!(rows.collect::<Vec<_>>(), [("1", 1, 1), ("2", 0, 2)]);
    assert_eq!(scene.letters[0].note.as_deref(), Some("3"));
    assert_eq!((scene.stats.dispatched, scene.stats.acked, scene.letters.len()), (4, 1, 1));
}

async fn an_error_for_all_is_that_of_each(stage: &Stage) {
    let failing = Subscriber::batches("it", "q", 10, |_| async { Err::<(), _>("all") });
    let play = stage.play(failing.retry(NoRetry), numbers(0..3)).await;
    play.closed(3).await;
    let scene = play.end().await;
    assert!(scene.rows.is_empty());
    let texts: Vec<_> = scene.letters.iter().map(|one| one.exception.as_deref()).collect();
    assert_eq!(texts, [Some("\"all\""); 3]);
}

#[subscriber("q", batch = 10, retry = NoRetry)]
async fn readable(numbers: Vec<i64>) {
    assert!(numbers.iter().all(|n| *n < 3));
}

async fn a_message_that_does_not_decode_fails_alone(stage: &Stage) {
    let messages = numbers(0..3).chain([Outgoing::new("q", "three")]);
    let play = stage.play(readable::subscriber(), messages).await;
    play.closed(4).await;
    let scene = play.end().await;
    assert_eq!(scene.stats.acked, 3);
    let letter = scene.letter();
    assert_eq!((&*letter.payload, letter.kind.as_deref()), ("\"three\"", Some("decode")));
}
