//! The acknowledgement policies.

use outbox::retry::NoRetry;
use outbox::{AckPolicy, Outcome};

use super::*;

on_all!(
    ack_first_deletes_before_the_run_whatever_it_comes_to,
    reject_on_error_asks_no_strategy,
    manual_does_what_was_said,
    manual_without_a_word_is_a_reject,
    manual_with_an_error_is_a_nack,
    manual_hears_a_word_over_a_later_error,
);

async fn ack_first_deletes_before_the_run_whatever_it_comes_to(stage: &Stage) {
    let failing = it(|_| Err::<(), _>("too late")).ack(AckPolicy::AckFirst);
    let scene = stage.first(failing, seven()).await;
    assert_eq!((scene.stats.acked, scene.stats.terminal()), (1, 0));
    scene.is_empty();
}

async fn reject_on_error_asks_no_strategy(stage: &Stage) {
    let failing = it(|_| Err::<(), _>("bad")).ack(AckPolicy::RejectOnError);
    let letter = stage.first(failing, seven()).await.letter();
    assert_eq!((&*letter.reason, letter.exception.as_deref()), ("rejected", Some("\"bad\"")));
    stage.clear().await;
    stage.first(it(|_| ()).ack(AckPolicy::RejectOnError), seven()).await.is_empty();
}

fn manual(
    say: impl Fn(&Context) -> Result<(), &'static str> + Send + Sync + 'static,
) -> Subscriber {
    it(say).ack(AckPolicy::Manual)
}

async fn manual_does_what_was_said(stage: &Stage) {
    let said = |say: fn(&Context) -> bool| {
        stage.first(manual(move |ctx| if say(ctx) { Ok(()) } else { Err("deaf") }), seven())
    };
    said(Context::ack).await.is_empty();
    let row = said(Context::nack).await.row();
    assert_eq!((row.attempts, row.deliveries, row.hours), (1, 1, 1));
    stage.clear().await;
    let row = said(|ctx| ctx.snooze(2 * HOUR)).await.row();
    assert_eq!((row.attempts, row.deliveries, row.hours), (0, 0, 2));
    stage.clear().await;
    let letter = said(|ctx| ctx.reject("no")).await.letter();
    assert_eq!((&*letter.reason, letter.note.as_deref()), ("rejected", Some("no")));
    assert_eq!(letter.exception, None);
}

async fn manual_without_a_word_is_a_reject(stage: &Stage) {
    let letter = stage.first(manual(|_| Ok(())), seven()).await.letter();
    let note = letter.note.as_deref();
    assert_eq!((&*letter.reason, note), ("rejected", Some("the handler returned without a word")));
    assert_eq!(letter.exception, None);
}

async fn manual_with_an_error_is_a_nack(stage: &Stage) {
    let row = stage.first(manual(|_| Err("failed")), seven()).await.row();
    assert_eq!((row.attempts, row.deliveries, row.hours), (1, 1, 1));
    stage.clear().await;
    let letter = stage.first(manual(|_| Err("failed")).retry(NoRetry), seven()).await.letter();
    assert_eq!(letter.reason, "retry_terminal");
    assert_eq!(letter.exception.as_deref(), Some("\"failed\""));
}

async fn manual_hears_a_word_over_a_later_error(stage: &Stage) {
    let acked = manual(|ctx| if ctx.ack() { Err("too late") } else { Ok(()) });
    stage.first(acked, seven()).await.is_empty();
    let said = it(|ctx| {
        assert!(ctx.snooze(2 * HOUR));
        Outcome::Nack
    });
    let row = stage.first(said.ack(AckPolicy::Manual), seven()).await.row();
    assert_eq!((row.attempts, row.hours), (0, 2));
}
