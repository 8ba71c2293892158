//! Errors that say what they mean for their message.

use anyhow::Context as _;
use outbox::retry::{Constant, NoRetry};
use outbox::{AckPolicy, Failure, FailureReason, HandlerError, Judged, OrVerdict};

use super::*;

#[derive(Debug, Clone, Copy, Failure)]
enum MailError {
    #[retry]
    Down,
    #[retry(after = "5m")]
    Throttled { _seconds: u64 },
    #[reject]
    Address(&'static str),
    #[snooze("1h")]
    Night,
}

impl std::fmt::Display for MailError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address} is no address"),
            other => write!(f, "{other:?}"),
        }
    }
}

impl std::error::Error for MailError {}

const THROTTLED: MailError = MailError::Throttled { _seconds: 3 };

async fn ending(error: MailError, change: impl FnOnce(Subscriber) -> Subscriber) -> Ending {
    let failing = it(move || Err::<(), _>(error)).retry(Constant::new(SECOND).max_attempts(2));
    first_ending(change(failing)).await.1
}

#[tokio::test]
async fn each_variant_ends_as_it_says() {
    let same = |subscriber| subscriber;
    assert_eq!(ending(MailError::Down, same).await, Ending::Retried(SECOND));
    assert_eq!(ending(THROTTLED, same).await, Ending::Retried(300 * SECOND));
    assert_eq!(
        ending(MailError::Address("x"), same).await,
        Ending::Terminal(FailureReason::Rejected)
    );
    assert_eq!(ending(MailError::Night, same).await, Ending::Snoozed(3600 * SECOND));
}

#[tokio::test]
async fn the_word_of_an_error_counts_over_the_policy() {
    let reject = |subscriber: Subscriber| subscriber.ack(AckPolicy::RejectOnError);
    assert_eq!(ending(MailError::Down, reject).await, Ending::Retried(SECOND));
    assert_eq!(ending(MailError::Night, reject).await, Ending::Snoozed(3600 * SECOND));
}

#[tokio::test]
async fn a_delay_of_its_own_does_not_lift_the_limits_of_the_strategy() {
    let none = |subscriber: Subscriber| subscriber.retry(NoRetry);
    let terminal = Ending::Terminal(FailureReason::RetryTerminal);
    assert_eq!(ending(THROTTLED, none).await, terminal);
}

#[tokio::test]
async fn the_kind_is_the_variant_s_name() {
    let (broker, _) = first_ending(it(|| Err::<(), _>(MailError::Address("x@")))).await;
    let letter = only_letter(&broker);
    assert_eq!(letter.error_kind.as_deref(), Some("Address"));
    assert_eq!(letter.last_exception.as_deref(), Some("Address(\"x@\")"));
}

#[derive(Debug)]
struct Wrapped<E>(E);

impl<E> std::fmt::Display for Wrapped<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the mail was not sent")
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Wrapped<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn a_source_with_a_word_counts_and_so_does_a_boxed_one() {
    let (_, end) = first_ending(it(|| Err::<(), _>(Wrapped(MailError::Night)))).await;
    assert_eq!(end, Ending::Snoozed(3600 * SECOND));
    let boxed = || Err::<(), Box<dyn std::error::Error + Send + Sync>>(MailError::Night.into());
    assert_eq!(first_ending(it(boxed)).await.1, Ending::Snoozed(3600 * SECOND));
    let context = || Err::<(), _>(anyhow::Error::new(Wrapped(MailError::Night)).context("mail 7"));
    assert_eq!(first_ending(it(context)).await.1, Ending::Snoozed(3600 * SECOND));
}

#[tokio::test]
async fn a_word_counts_through_a_box_and_an_arc() {
    let boxed = || Box::new(MailError::Address("x"));
    let (broker, end) = first_ending(it(move || Err::<(), _>(boxed()))).await;
    assert_eq!(end, Ending::Terminal(FailureReason::Rejected));
    assert_eq!(only_letter(&broker).error_kind.as_deref(), Some("Address"));
    let (_, end) = first_ending(it(move || Err::<(), _>(Wrapped(boxed())))).await;
    assert_eq!(end, Ending::Terminal(FailureReason::Rejected));
    let shared = || std::sync::Arc::new(MailError::Night);
    let (_, end) = first_ending(it(move || Err::<(), _>(shared()))).await;
    assert_eq!(end, Ending::Snoozed(3600 * SECOND));
    let (_, end) = first_ending(it(move || Err::<(), _>(Wrapped(shared())))).await;
    assert_eq!(end, Ending::Snoozed(3600 * SECOND));
}

fn number(text: &str) -> Result<u32, std::num::ParseIntError> {
    text.parse()
}

#[tokio::test]
async fn any_result_can_be_rejected_or_snoozed() {
    let rejected = || number("x").or_reject().map(drop);
    let (broker, end) = first_ending(it(rejected)).await;
    assert_eq!(end, Ending::Terminal(FailureReason::Rejected));
    let letter = only_letter(&broker);
    assert_eq!(letter.error_kind.as_deref(), Some("ParseIntError"));
    assert_eq!(letter.last_exception.as_deref(), Some("ParseIntError { kind: InvalidDigit }"));

    let snoozed = || -> Result<(), Judged> { Err("not yet").or_snooze(60 * SECOND) };
    assert_eq!(first_ending(it(snoozed)).await.1, Ending::Snoozed(60 * SECOND));

    let anyhow = || -> anyhow::Result<()> {
        number("x").or_reject()?;
        Ok(())
    };
    let (broker, end) = first_ending(it(anyhow)).await;
    assert_eq!(end, Ending::Terminal(FailureReason::Rejected));
    assert_eq!(only_letter(&broker).error_kind.as_deref(), Some("ParseIntError"));
    let caused = || -> anyhow::Result<()> {
        number("x").context("reading the invoice").or_reject()?;
        Ok(())
    };
    let (broker, end) = first_ending(it(caused)).await;
    assert_eq!(end, Ending::Terminal(FailureReason::Rejected));
    let why = only_letter(&broker).last_exception.unwrap();
    assert!(why.contains("reading the invoice") && why.contains("invalid digit"), "{why}");
    let fine = || number("7").or_reject().map(drop);
    assert_eq!(first_ending(it(fine)).await.1, Ending::Acked);
}

/// A layer marks what it got, or a handler what its helper made of an error.
#[tokio::test]
async fn a_mark_on_an_error_that_has_a_kind_keeps_that_and_its_text() {
    fn helper() -> Result<(), HandlerError> {
        Err(HandlerError::new("stock", "no stock"))
    }
    let marked = || -> Result<(), HandlerError> { Ok(helper().or_reject()?) };
    let wrapped = || -> Result<(), HandlerError> {
        helper().map_err(|error| HandlerError::new("order", error)).or_reject()?;
        Ok(())
    };
    for (subscriber, kind) in [(it(marked), "stock"), (it(wrapped), "order")] {
        let (broker, ending) = first_ending(subscriber).await;
        assert_eq!(ending, Ending::Terminal(FailureReason::Rejected));
        let letter = only_letter(&broker);
        assert_eq!(letter.error_kind.as_deref(), Some(kind));
        assert_eq!(letter.last_exception.as_deref(), Some("\"no stock\""));
    }
}

#[tokio::test]
async fn a_mark_keeps_the_kind_of_a_failure_and_of_what_was_marked_before() {
    fn marked() -> Result<(), HandlerError> {
        Err(HandlerError::new("stock", "no stock")).or_snooze(SECOND)?;
        Ok(())
    }
    type Fails = fn() -> Result<(), Judged>;
    let cases: [(Fails, &str, &str); 4] = [
        (|| Err(MailError::Address("x")).or_reject(), "Address", "Address(\"x\")"),
        (
            || Err(Wrapped(MailError::Night)).or_reject(),
            "Night",
            "Wrapped(Night)\ncaused by: Night",
        ),
        (
            || number("x").map(drop).or_snooze(SECOND).or_reject(),
            "ParseIntError",
            "ParseIntError { kind: InvalidDigit }",
        ),
        (|| marked().or_reject().or_reject(), "stock", "\"no stock\""),
    ];
    for (fails, kind, text) in cases {
        let (broker, ending) = first_ending(it(fails)).await;
        assert_eq!(ending, Ending::Terminal(FailureReason::Rejected));
        let letter = only_letter(&broker);
        assert_eq!(letter.error_kind.as_deref(), Some(kind));
        assert_eq!(letter.last_exception.as_deref(), Some(text));
    }
}

struct Tenant;

impl outbox::FromContext for Tenant {
    type Rejection = MailError;

    async fn from_context(_: &outbox::Context) -> Result<Self, MailError> {
        Err(MailError::Address("none"))
    }
}

struct Open;

impl outbox::FromContext for Open {
    type Rejection = Judged;

    async fn from_context(_: &outbox::Context) -> Result<Self, Judged> {
        Err("closed").or_snooze(60 * SECOND).map(|()| Self)
    }
}

#[outbox::subscriber("q", retry = NoRetry)]
async fn of_a_tenant(_: i64, _: Tenant) {}

#[outbox::subscriber("q", retry = NoRetry)]
async fn while_it_is_open(_: i64, _: Open) {}

#[tokio::test]
async fn the_word_of_a_rejection_counts() {
    let broker = TestBroker::with([of_a_tenant::subscriber()]);
    broker.publish("q", &7).await.unwrap();
    let letter = only_letter(&broker);
    assert_eq!(letter.failure_reason, FailureReason::Rejected);
    assert_eq!(letter.error_kind.as_deref(), Some("extract"));
    let broker = TestBroker::with([while_it_is_open::subscriber()]);
    broker.publish("q", &7).await.unwrap();
    assert_eq!(broker.calls("while_it_is_open")[0].ending, Ending::Snoozed(60 * SECOND));
}

/// A layer names the kind anew.
#[tokio::test]
async fn an_error_of_another_kind_says_what_it_said_before() {
    for (error, expected) in [
        (MailError::Night, Ending::Snoozed(3600 * SECOND)),
        (MailError::Address("x"), Ending::Terminal(FailureReason::Rejected)),
    ] {
        let named = it(move || Err::<(), _>(error)).retry(NoRetry).layer(
            async |ctx: outbox::Context, next: outbox::Next| {
                next.run(ctx).await.map_err(|error| HandlerError::new("billing", error))
            },
        );
        assert_eq!(first_ending(named).await.1, expected);
        let new = move || Err::<(), _>(HandlerError::new("billing", error));
        assert_eq!(first_ending(it(new).retry(NoRetry)).await.1, expected);
    }
}

#[derive(Debug, thiserror::Error)]
#[error("of tenant 7")]
struct OfTenant(#[source] outbox::BoxError);

/// A layer makes an error of its own of what it got, and keeps the kind or takes that which it
/// finds.
#[tokio::test]
async fn an_error_inside_another_says_what_it_said_before() {
    type Names = fn(HandlerError) -> HandlerError;
    let names: [Names; 2] = [
        |error| HandlerError::new(error.kind().to_owned(), OfTenant(error.into())),
        |error| OfTenant(error.into()).into(),
    ];
    type Fails = fn() -> Result<(), HandlerError>;
    let fails: [(Fails, Ending); 3] = [
        (|| Err(MailError::Address("x").into()), Ending::Terminal(FailureReason::Rejected)),
        (|| Ok(number("x").map(drop).or_snooze(60 * SECOND)?), Ending::Snoozed(60 * SECOND)),
        (|| Ok(number("x").map(drop)?), Ending::Retried(SECOND)),
    ];
    for named in names {
        for (fails, expected) in &fails {
            let layer = move |ctx: outbox::Context, next: outbox::Next| async move {
                next.run(ctx).await.map_err(named)
            };
            let within = it(*fails).retry(Constant::new(SECOND)).layer(layer);
            assert_eq!(first_ending(within).await.1, *expected);
        }
    }
}
