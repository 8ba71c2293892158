//! The acknowledgement policies.

use outbox::retry::{Constant, NoRetry};
use outbox::{AckPolicy, Context, FailureReason, Outcome};

use super::*;

fn manual(
    say: impl Fn(&Context) -> Result<Outcome, &'static str> + Send + Sync + 'static,
) -> Subscriber {
    let say = std::sync::Arc::new(say);
    Subscriber::new("it", "q", move |context| {
        let say = std::sync::Arc::clone(&say);
        async move { say(&context) }
    })
    .ack(AckPolicy::Manual)
    .retry(Constant::new(SECOND))
}

#[tokio::test]
async fn reject_on_error_asks_no_strategy_and_keeps_the_error() {
    let subscriber = it(failing).ack(AckPolicy::RejectOnError).retry(super::retries::NeverAsked);
    let (broker, ending) = first_ending(subscriber).await;
    assert_eq!(ending, Ending::Terminal(FailureReason::Rejected));
    let letter = only_letter(&broker);
    assert_eq!(letter.last_exception.as_deref(), Some("\"no stock\""));
    assert!(letter.error_kind.is_some());
}

#[tokio::test]
async fn reject_on_error_acks_what_succeeds_and_hears_a_snooze() {
    let (broker, _) = first_ending(it(|| ()).ack(AckPolicy::RejectOnError)).await;
    assert!(broker.rows().is_empty() && broker.dlq_rows().is_empty());
    let snoozing = it(|| Outcome::Snooze(SECOND)).ack(AckPolicy::RejectOnError);
    let (_, ending) = first_ending(snoozing).await;
    assert_eq!(ending, Ending::Snoozed(SECOND));
}

#[tokio::test]
async fn ack_first_deletes_before_the_handler_runs() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(None));
    let subscriber = {
        let seen = std::sync::Arc::clone(&seen);
        Subscriber::new("it", "q", move |context: Context| {
            let seen = std::sync::Arc::clone(&seen);
            async move {
                let broker = context.state::<TestBroker>().unwrap().clone();
                *seen.lock().unwrap() = Some(broker.rows().len());
            }
        })
        .ack(AckPolicy::AckFirst)
    };
    let broker = TestBroker::with([subscriber]);
    let broker = broker.clone().state(broker);
    broker.publish("q", &7).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), Some(0));
    assert_eq!(broker.calls("it")[0].ending, Ending::Acked);
}

#[tokio::test]
async fn ack_first_runs_at_most_once_even_when_it_fails_or_panics() {
    for panics in [false, true] {
        let subscriber = it(move || {
            assert!(!panics, "asked to");
            failing()
        });
        let (broker, _) = first_ending(subscriber.ack(AckPolicy::AckFirst)).await;
        broker.run_until_idle().await;
        broker.redeliver().await;
        assert_eq!(runs(&broker), 1);
        assert!(broker.rows().is_empty() && broker.dlq_rows().is_empty());
    }
}

/// The first of two that were claimed together takes the other one away.
#[tokio::test]
async fn ack_first_a_row_that_is_lost_before_its_ack_has_not_run() {
    let subscriber = Subscriber::new("it", "q", |context: Context| async move {
        context.state::<TestBroker>().unwrap().lose_leases();
    });
    let broker = TestBroker::with([subscriber.ack(AckPolicy::AckFirst)]);
    let broker = broker.clone().state(broker);
    broker.publish_batch([1, 2].map(|n| outbox::Outgoing::new("q", &n))).await.unwrap();
    assert_eq!((runs(&broker), broker.rows().len()), (1, 1));
    broker.redeliver().await;
    assert_eq!((runs(&broker), broker.rows().len()), (2, 0));
}

#[tokio::test]
async fn manual_a_word_counts_over_a_later_error_or_panic() {
    let after_ack = manual(|context| {
        context.ack();
        Err("too late")
    });
    assert_eq!(first_ending(after_ack).await.1, Ending::Acked);
    let panicking = manual(|context| {
        context.reject("enough");
        panic!("too late")
    });
    let (broker, ending) = first_ending(panicking).await;
    assert_eq!(ending, Ending::Terminal(FailureReason::Rejected));
    assert_eq!(only_letter(&broker).note.as_deref(), Some("enough"));
}

#[tokio::test]
async fn manual_the_first_word_counts_and_the_second_is_told_so() {
    let subscriber = manual(|context| {
        assert!(context.snooze(3 * SECOND));
        assert!(!context.ack());
        assert!(!context.reject("no"));
        Ok(Outcome::Ack)
    });
    assert_eq!(first_ending(subscriber).await.1, Ending::Snoozed(3 * SECOND));
}

/// The word says what becomes of it, and the error why.
#[tokio::test]
async fn manual_the_error_after_a_word_is_kept() {
    for rejected in [false, true] {
        let subscriber = manual(move |context| {
            assert!(if rejected { context.reject("not ours") } else { context.nack() });
            Err("no stock")
        });
        let (broker, _) = first_ending(subscriber.retry(NoRetry)).await;
        let letter = only_letter(&broker);
        assert_eq!(letter.last_exception.as_deref(), Some("\"no stock\""));
        assert!(letter.error_kind.is_some());
    }
}

#[tokio::test]
async fn manual_an_outcome_is_a_word_and_so_is_that_of_a_layer() {
    assert_eq!(first_ending(manual(|_| Ok(Outcome::Ack))).await.1, Ending::Acked);
    let silent = Subscriber::new("it", "q", |_: Context| async {}).ack(AckPolicy::Manual);
    let known = silent.layer(|_: Context, _: outbox::Next| async { Ok(Outcome::Ack) });
    assert_eq!(first_ending(known).await.1, Ending::Acked);
    let (_, ending) = first_ending(manual(|_| Ok(Outcome::Snooze(SECOND)))).await;
    assert_eq!(ending, Ending::Snoozed(SECOND));
    let (_, ending) = first_ending(manual(|_| Ok(Outcome::Nack)).retry(NoRetry)).await;
    assert_eq!(ending, Ending::Terminal(FailureReason::RetryTerminal));
}

/// What it publishes is no word, and its error is one, as that of any other handler.
#[outbox::subscriber("q", publish = "next", ack = Manual)]
async fn publishing(n: i64) -> Result<i64, String> {
    if n < 0 { Err(format!("{n} is negative")) } else { Ok(n) }
}

#[tokio::test]
async fn manual_a_layer_may_ack_what_a_publishing_handler_has_failed() {
    let layer =
        |ctx: Context, next: outbox::Next| async { next.run(ctx).await.or(Ok(Outcome::Ack)) };
    let broker = TestBroker::with([publishing::subscriber().layer(layer)]);
    broker.publish_batch([-1, 1].map(|n| outbox::Outgoing::new("q", &n))).await.unwrap();
    let endings: Vec<_> = broker.calls("publishing").iter().map(|it| it.ending.clone()).collect();
    assert_eq!(endings, [Ending::Acked, Ending::Terminal(FailureReason::Rejected)]);
}

const ON_ERROR: [AckPolicy; 2] = [AckPolicy::NackOnError, AckPolicy::RejectOnError];

#[tokio::test]
async fn on_error_a_word_counts_where_the_handler_returns_none() {
    type Says = fn(&Context) -> bool;
    let cases: [(Says, Ending); 3] = [
        (Context::nack, Ending::Retried(SECOND)),
        (|context| context.reject("no"), Ending::Terminal(FailureReason::Rejected)),
        (|context| context.snooze(3 * SECOND), Ending::Snoozed(3 * SECOND)),
    ];
    for policy in ON_ERROR {
        for (says, expected) in &cases {
            for returned in [Outcome::Ack, Outcome::Snooze(9 * SECOND)] {
                let says = *says;
                let subscriber = manual(move |context| {
                    assert!(says(context));
                    assert!(!context.reject("more"), "the first word counts");
                    Ok(returned.clone())
                });
                assert_eq!(first_ending(subscriber.ack(policy)).await.1, *expected);
            }
        }
    }
}

#[tokio::test]
async fn on_error_an_error_or_a_panic_counts_over_a_word() {
    for (policy, expected) in ON_ERROR
        .into_iter()
        .zip([Ending::Retried(SECOND), Ending::Terminal(FailureReason::Rejected)])
    {
        for panics in [false, true] {
            let subscriber = manual(move |context| {
                assert!(context.snooze(9 * SECOND));
                assert!(!panics, "asked to");
                Err("too late")
            });
            assert_eq!(first_ending(subscriber.ack(policy)).await.1, expected);
        }
    }
}

/// The handler may still fail.
#[tokio::test]
async fn on_error_an_ack_is_no_word() {
    for policy in ON_ERROR {
        let subscriber = manual(|context| {
            assert!(!context.ack(), "it would be acked whatever it returns");
            Ok(Outcome::Snooze(SECOND))
        });
        assert_eq!(first_ending(subscriber.ack(policy)).await.1, Ending::Snoozed(SECOND));
    }
}

#[tokio::test]
async fn on_error_a_word_on_one_message_of_a_batch_is_of_that_one() {
    let subscriber = Subscriber::batches("it", "q", 3, |batch: Vec<Context>| async move {
        assert!(batch[1].reject("no"));
    });
    let broker = TestBroker::with([subscriber]);
    broker.publish_batch((1..=3).map(|n| outbox::Outgoing::new("q", &n))).await.unwrap();
    let letter = only_letter(&broker);
    assert_eq!((&letter.payload[..], letter.note.as_deref()), (&b"2"[..], Some("no")));
    assert!(broker.rows().is_empty());
}

#[tokio::test]
async fn ack_first_hears_no_word() {
    let subscriber = manual(|context| {
        assert!(!context.reject("no"), "it would wait for a letter");
        Ok(Outcome::Ack)
    });
    assert_eq!(first_ending(subscriber.ack(AckPolicy::AckFirst)).await.1, Ending::Acked);
}
