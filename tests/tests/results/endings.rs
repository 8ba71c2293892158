//! The table of results, row by row.

use outbox::retry::{FailedAttempt, NoRetry, RetryStrategy};
use outbox::{Failure, OrVerdict, Outcome};

use super::left::{Left, Letter};
use super::*;

on_all!(
    nothing_and_ok_are_acks,
    an_error_spends_an_attempt_and_waits_as_the_strategy_says,
    an_error_without_a_further_delay_is_terminal,
    a_nack_is_an_error_without_a_text,
    a_reject_is_terminal_for_its_reason,
    a_snooze_spends_neither_an_attempt_nor_a_delivery,
    a_row_snoozed_often_is_not_delivered_too_often,
    a_panic_is_an_error_with_its_message,
    a_timeout_is_an_error_of_its_kind,
    an_undecodable_payload_is_an_error_of_its_kind,
    a_row_delivered_too_often_is_terminal_without_a_run,
    each_variant_of_a_failure_ends_as_it_says,
    any_error_can_be_rejected_or_snoozed,
    the_strategy_sees_the_error,
    a_plain_fn_is_settled_as_any_other,
);

/// Due again in so many hours.
fn left(attempts: i64, deliveries: i64, hours: i64) -> Left {
    let (queue, payload) = ("q".to_owned(), "7".to_owned());
    Left { queue, payload, attempts, deliveries, hours }
}

fn letter(reason: &str, kind: Option<&str>, exception: Option<&str>, note: Option<&str>) -> Letter {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Letter {
        payload: "7".into(),
        reason: reason.into(),
        kind: owned(kind),
        exception: owned(exception),
        note: owned(note),
    }
}

#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it broke")
    }
}

impl std::error::Error for Broken {}

async fn nothing_and_ok_are_acks(stage: &Stage) {
    for done in [it(|_| ()), it(|_| Ok::<_, Broken>(())), it(|_| Outcome::Ack)] {
        let scene = stage.first(done, seven()).await;
        assert_eq!(scene.stats.acked, 1);
        scene.is_empty();
    }
}

async fn an_error_spends_an_attempt_and_waits_as_the_strategy_says(stage: &Stage) {
    let scene = stage.first(it(|_| Err::<(), _>(Broken)), seven()).await;
    assert_eq!(scene.row(), left(1, 1, 1));
}

async fn an_error_without_a_further_delay_is_terminal(stage: &Stage) {
    let scene = stage.first(it(|_| Err::<(), _>(Broken)).retry(NoRetry), seven()).await;
    let expected = letter("retry_terminal", Some("Broken"), Some("Broken"), None);
    assert_eq!(scene.letter(), expected);
}

async fn a_nack_is_an_error_without_a_text(stage: &Stage) {
    let scene = stage.first(it(|_| Outcome::Nack).retry(NoRetry), seven()).await;
    assert_eq!(scene.letter(), letter("retry_terminal", None, None, None));
}

async fn a_reject_is_terminal_for_its_reason(stage: &Stage) {
    let scene = stage.first(it(|_| Outcome::reject("not ours")), seven()).await;
    assert_eq!(scene.letter(), letter("rejected", None, None, Some("not ours")));
}

async fn a_snooze_spends_neither_an_attempt_nor_a_delivery(stage: &Stage) {
    let scene = stage.first(it(|_| Outcome::Snooze(2 * HOUR)), seven()).await;
    assert_eq!(scene.row(), left(0, 0, 2));
}

async fn a_row_snoozed_often_is_not_delivered_too_often(stage: &Stage) {
    let runs = std::sync::atomic::AtomicUsize::new(0);
    let patient = it(move |_| {
        if runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 5 {
            return Outcome::Snooze(MOMENT);
        }
        Outcome::Ack
    });
    let play = stage.play(patient.max_deliveries(1), [seven()]).await;
    play.gone().await;
    let scene = play.end().await;
    assert_eq!((scene.stats.snoozed, scene.stats.acked), (5, 1));
    scene.is_empty();
}

async fn a_panic_is_an_error_with_its_message(stage: &Stage) {
    let panicking = || it(|_| -> () { panic!("out of ink") });
    assert_eq!(stage.first(panicking(), seven()).await.row(), left(1, 1, 1));
    stage.clear().await;
    let dead = stage.first(panicking().retry(NoRetry), seven()).await.letter();
    assert_eq!(dead.kind.as_deref(), Some("panic"));
    assert!(dead.exception.unwrap().contains("out of ink"));
}

async fn a_timeout_is_an_error_of_its_kind(stage: &Stage) {
    let endless = Subscriber::new("it", "q", |_| std::future::pending::<()>());
    let scene = stage.first(endless.timeout(MOMENT).retry(NoRetry), seven()).await;
    let dead = scene.letter();
    assert_eq!((&*dead.reason, dead.kind.as_deref()), ("retry_terminal", Some("timeout")));
    assert!(dead.exception.unwrap().contains("20ms"));
}

#[outbox::subscriber("q", retry = Constant("1h", jitter = 0))]
async fn text(_: String) {}

async fn an_undecodable_payload_is_an_error_of_its_kind(stage: &Stage) {
    assert_eq!(stage.first(text::subscriber(), seven()).await.row(), left(1, 1, 1));
    stage.clear().await;
    let dead = stage.first(text::subscriber().retry(NoRetry), seven()).await.letter();
    assert_eq!((&*dead.reason, dead.kind.as_deref()), ("retry_terminal", Some("decode")));
}

async fn a_row_delivered_too_often_is_terminal_without_a_run(stage: &Stage) {
    let failing = it(|_| Err::<(), _>(Broken)).retry(Constant::new(MOMENT)).max_deliveries(2);
    let play = stage.play(failing, [seven()]).await;
    play.gone().await;
    let scene = play.end().await;
    assert_eq!((scene.stats.dispatched, scene.stats.max_deliveries), (2, 1));
    assert_eq!(scene.letter(), letter("max_deliveries", None, None, None));
}

#[derive(Debug, thiserror::Error, Failure)]
enum MailError {
    #[error("down")]
    #[retry]
    Down,
    #[error("throttled")]
    #[retry(after = "3h")]
    Throttled,
    #[error("no address")]
    #[reject]
    Address,
    #[error("night")]
    #[snooze("2h")]
    Night,
}

async fn each_variant_of_a_failure_ends_as_it_says(stage: &Stage) {
    use MailError::{Address, Down, Night, Throttled};
    let first = |error: fn() -> MailError| stage.first(it(move |_| Err::<(), _>(error())), seven());
    assert_eq!(first(|| Down).await.row(), left(1, 1, 1));
    stage.clear().await;
    assert_eq!(first(|| Throttled).await.row(), left(1, 1, 3));
    stage.clear().await;
    assert_eq!(first(|| Night).await.row(), left(0, 0, 2));
    stage.clear().await;
    let expected = letter("rejected", Some("Address"), Some("Address"), None);
    assert_eq!(first(|| Address).await.letter(), expected);
}

async fn any_error_can_be_rejected_or_snoozed(stage: &Stage) {
    let scene = stage.first(it(|_| Err::<(), _>(Broken).or_snooze(2 * HOUR)), seven()).await;
    assert_eq!(scene.row(), left(0, 0, 2));
    stage.clear().await;
    let scene = stage.first(it(|_| Err::<(), _>(Broken).or_reject()), seven()).await;
    assert_eq!(scene.letter(), letter("rejected", Some("Broken"), Some("Broken"), None));
}

/// Waits long for what it knows by its kind and its type.
struct ByError;

impl RetryStrategy for ByError {
    fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
        let error = failed.error?;
        let known = error.kind() == "Broken" && error.error().is::<Broken>();
        known.then_some(4 * HOUR)
    }
}

async fn the_strategy_sees_the_error(stage: &Stage) {
    let scene = stage.first(it(|_| Err::<(), _>(Broken)).retry(ByError), seven()).await;
    assert_eq!(scene.row(), left(1, 1, 4));
    stage.clear().await;
    let scene = stage.first(it(|_| Err::<(), _>("another")).retry(ByError), seven()).await;
    assert_eq!(scene.letter().reason, "retry_terminal");
}

#[outbox::subscriber("q")]
fn plain(n: i64) -> Result<(), Outcomes> {
    if n == 7 { Err(Outcomes) } else { Ok(()) }
}

#[derive(Debug)]
struct Outcomes;

impl From<Outcomes> for outbox::BoxError {
    fn from(_: Outcomes) -> Self {
        "seven".into()
    }
}

async fn a_plain_fn_is_settled_as_any_other(stage: &Stage) {
    let scene = stage.first(plain::subscriber().retry(NoRetry), seven()).await;
    let expected = letter("retry_terminal", Some("Outcomes"), Some("\"seven\""), None);
    assert_eq!(scene.letter(), expected);
}
