//! Results and their effects to the moment, on a clock that stands still; the whole table is
//! in `tests/tests/results`.

use outbox::retry::{Constant, NoRetry};
use outbox::{FailureReason, Outcome};

use super::*;

#[tokio::test]
async fn an_error_spends_an_attempt_and_asks_the_strategy() {
    let (broker, ending) = first_ending(it(failing).retry(Constant::new(5 * SECOND))).await;
    assert_eq!(ending, Ending::Retried(5 * SECOND));
    let row = &broker.rows()[0];
    assert_eq!((row.attempts_count, row.deliveries_count), (1, 1));
    assert_eq!(row.next_attempt_at, broker.now() + 5 * SECOND);
    assert_eq!(
        (row.first_attempt_at, row.last_attempt_at),
        (Some(broker.now()), Some(broker.now()))
    );
    assert!(row.acquired_token.is_none() && row.acquired_at.is_none());
}

#[tokio::test]
async fn a_nack_by_outcome_is_an_error_without_a_text() {
    let (broker, ending) = first_ending(it(|| Outcome::Nack).retry(Constant::new(SECOND))).await;
    assert_eq!(ending, Ending::Retried(SECOND));
    assert_eq!(broker.rows()[0].attempts_count, 1);

    let (broker, _) = first_ending(it(|| Outcome::Nack).retry(NoRetry)).await;
    let letter = only_letter(&broker);
    assert_eq!(letter.failure_reason, FailureReason::RetryTerminal);
    assert_eq!((letter.last_exception, letter.error_kind), (None, None));
}

#[tokio::test]
async fn a_reject_is_terminal_and_the_strategy_is_not_asked() {
    let subscriber = it(|| Outcome::reject("no such order")).retry(super::retries::NeverAsked);
    let (broker, ending) = first_ending(subscriber).await;
    assert_eq!(ending, Ending::Terminal(FailureReason::Rejected));
    let letter = only_letter(&broker);
    assert_eq!(letter.note.as_deref(), Some("no such order"));
    assert_eq!((letter.last_exception, letter.error_kind), (None, None));
}

#[tokio::test]
async fn a_snooze_spends_neither_an_attempt_nor_a_delivery() {
    let (broker, ending) = first_ending(it(|| Outcome::Snooze(30 * SECOND))).await;
    assert_eq!(ending, Ending::Snoozed(30 * SECOND));
    let row = &broker.rows()[0];
    assert_eq!((row.attempts_count, row.deliveries_count), (0, 0));
    assert_eq!(row.next_attempt_at, broker.now() + 30 * SECOND);
    assert!(row.acquired_token.is_none());
}

#[tokio::test]
async fn a_panic_is_an_error_with_its_message() {
    let subscriber =
        it(|| -> () { panic!("out of ink") }).retry(Constant::new(SECOND).max_attempts(2));
    let (broker, ending) = first_ending(subscriber).await;
    assert_eq!(ending, Ending::Retried(SECOND));
    broker.run_until_idle().await;
    let letter = only_letter(&broker);
    assert_eq!(letter.failure_reason, FailureReason::RetryTerminal);
    assert_eq!(letter.error_kind.as_deref(), Some("panic"));
    assert!(letter.last_exception.unwrap().contains("out of ink"));
}

#[tokio::test]
async fn an_undecodable_payload_asks_the_strategy_so_a_newer_consumer_can_take_it() {
    let subscriber =
        super::payloads::number::subscriber().retry(Constant::new(SECOND).max_attempts(2));
    let broker = TestBroker::with([subscriber]);
    broker.publish("number", "seven").await.unwrap();
    assert_eq!(broker.rows()[0].attempts_count, 1);
    broker.run_until_idle().await;
    let letter = only_letter(&broker);
    assert_eq!(letter.failure_reason, FailureReason::RetryTerminal);
    assert_eq!(letter.error_kind.as_deref(), Some("decode"));
}

/// Every result × with and without a dead-letter table: the row's fate is the
/// same, only the letter is missing.
#[tokio::test]
async fn without_dead_letters_the_same_rows_stay_and_go() {
    type Make = fn() -> Subscriber;
    let table: [(Make, usize, usize); 6] = [
        (|| it(|| ()), 0, 0),
        (|| it(|| Outcome::Ack), 0, 0),
        (|| it(failing).retry(Constant::new(SECOND)), 1, 0),
        (|| it(failing).retry(NoRetry), 0, 1),
        (|| it(|| Outcome::reject("no")), 0, 1),
        (|| it(|| Outcome::Snooze(SECOND)), 1, 0),
    ];
    for (at, (make, rows, letters)) in table.into_iter().enumerate() {
        for keep in [true, false] {
            let broker = TestBroker::with([make()]);
            let broker = if keep { broker } else { broker.without_dlq() };
            broker.publish("q", &7).await.unwrap();
            let seen = (broker.rows().len(), broker.dlq_rows().len());
            assert_eq!(seen, (rows, if keep { letters } else { 0 }), "case {at}, kept: {keep}");
        }
    }
}
