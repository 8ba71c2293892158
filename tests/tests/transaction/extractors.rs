//! A transaction inside of another extractor, on the test broker.

use outbox::testing::{Ending, TestBroker};
use outbox::{AckPolicy, Context, Error, Failure, FromContext, HandlerError, Tx, subscriber};

use super::broker::pool;

#[subscriber("careless", retry = NoRetry)]
async fn careless(_: i64, _: Option<Tx<sqlx::Sqlite>>) {}

#[subscriber("deciding", retry = NoRetry)]
async fn deciding(_: i64, _: Result<Tx<sqlx::Sqlite>, HandlerError>) {}

#[tokio::test]
async fn a_transaction_in_an_option_or_a_result_is_one_to_the_checks_of_the_start() {
    for one in [careless::subscriber(), deciding::subscriber()] {
        let broker = TestBroker::with([one.ack(AckPolicy::AckFirst)]).transactions(pool().await);
        let Err(Error::Launch(reasons)) = broker.publish("careless", &7).await else {
            panic!("it was published")
        };
        assert!(reasons[0].contains("`Tx`") && reasons[0].contains("`AckFirst`"), "{reasons:?}");
    }
}

#[tokio::test]
async fn a_transaction_in_an_option_that_cannot_begin_puts_the_message_off() {
    let pool = pool().await;
    let broker = TestBroker::with([careless::subscriber()]).transactions(pool.clone());
    broker.publish("careless", &7).await.unwrap();
    assert!(broker.rows().is_empty(), "it is handled");
    pool.close().await;
    broker.publish("careless", &8).await.unwrap();
    let ending = broker.calls("careless")[1].ending.clone();
    assert!(matches!(ending, Ending::Snoozed(_)), "{ending:?}");
    assert_eq!((broker.rows().len(), broker.rows()[0].attempts_count), (1, 0));
}

#[derive(Debug, thiserror::Error)]
#[error("no accounts")]
struct NoAccounts(#[source] outbox::BoxError);

struct Accounts(#[allow(dead_code, reason = "it is held")] Tx<sqlx::Sqlite>);

impl FromContext for Accounts {
    type Rejection = NoAccounts;
    const TAKES_TRANSACTION: bool = true;

    async fn from_context(ctx: &Context) -> Result<Self, NoAccounts> {
        Tx::from_context(ctx).await.map(Self).map_err(|error| NoAccounts(error.into()))
    }
}

#[subscriber("accounts", retry = NoRetry)]
async fn in_accounts(_: i64, _: Accounts) {}

#[subscriber("accounts", retry = NoRetry)]
async fn perhaps_in_accounts(_: i64, _: Option<Accounts>) {}

/// Its rejection is one of its own, and says what that of the transaction says.
#[tokio::test]
async fn a_transaction_in_an_extractor_that_cannot_begin_puts_the_message_off() {
    for one in [in_accounts::subscriber(), perhaps_in_accounts::subscriber()] {
        let (pool, name) = (pool().await, one.name());
        let broker = TestBroker::with([one]).transactions(pool.clone());
        broker.publish("accounts", &7).await.unwrap();
        assert!(broker.rows().is_empty(), "it is handled");
        pool.close().await;
        broker.publish("accounts", &8).await.unwrap();
        let ending = broker.calls(name)[1].ending.clone();
        assert!(matches!(ending, Ending::Snoozed(_)), "{name}: {ending:?}");
        assert_eq!((broker.rows().len(), broker.rows()[0].attempts_count), (1, 0));
    }
}

#[derive(Debug, thiserror::Error, Failure)]
enum NoLedger {
    #[error("no ledger")]
    #[retry]
    Closed(#[source] outbox::BoxError),
}

struct Ledger(#[allow(dead_code, reason = "it is held")] Tx<sqlx::Sqlite>);

impl FromContext for Ledger {
    type Rejection = NoLedger;
    const TAKES_TRANSACTION: bool = true;

    async fn from_context(ctx: &Context) -> Result<Self, NoLedger> {
        Tx::from_context(ctx).await.map(Self).map_err(|error| NoLedger::Closed(error.into()))
    }
}

#[subscriber("ledger")]
async fn perhaps_in_ledger(_: i64, _: Option<Ledger>) {}

/// Its rejection has a word of its own.
#[tokio::test]
async fn a_transaction_in_an_option_that_cannot_begin_is_never_done_without() {
    let pool = pool().await;
    let broker = TestBroker::with([perhaps_in_ledger::subscriber()]).transactions(pool.clone());
    broker.publish("ledger", &7).await.unwrap();
    assert!(broker.rows().is_empty(), "it is handled");
    pool.close().await;
    broker.publish("ledger", &8).await.unwrap();
    let ending = broker.calls("perhaps_in_ledger")[1].ending.clone();
    assert!(matches!(ending, Ending::Retried(_)), "{ending:?}");
    assert_eq!((broker.rows().len(), broker.rows()[0].attempts_count), (1, 1));
}
