//! Apps that live through a crash of the server.

use std::time::Duration;

use outbox::{AckPolicy, App, Subscriber, Tx, subscriber};
use outbox_tests::db::Db;
use outbox_tests::probe::{self, Probe};
use outbox_tests::server::Server;

use super::{TRIES, server};

const MESSAGES: i64 = 20;

#[tokio::test]
async fn with_asynchronous_settles_a_crash_makes_deliveries_again_and_loses_none() {
    let Some((server, db)) = server().await else { return };
    let mut again = 0;
    for _ in 0..TRIES {
        let (subscriber, probe) = probe::free("counted", "q");
        let back = through_a_crash(&server, &db, db.app().async_settles(true), subscriber).await;
        let mut runs: Vec<_> = probe.more().await.iter().map(|run| run.id).collect();
        assert!(runs.len() as i64 >= MESSAGES + back, "{back} are back, of {runs:?}");
        runs.sort_unstable();
        runs.dedup();
        assert_eq!(runs.len() as i64, MESSAGES, "each is handled, and nothing else");
        again += back;
        if again > 0 {
            break;
        }
    }
    assert!(again > 0, "no ack was undone, so this proves nothing");
    println!("{again} messages were delivered again");
    db.close().await;
}

/// Were its ack undone, it would be found under the token of a row that ran alone, and be condemned.
#[tokio::test]
async fn a_row_that_ran_alone_is_settled_for_good_all_the_same() {
    let Some((server, db)) = server().await else { return };
    let (subscriber, probe) = probe::free("alone", "q");
    db.send_all((0..MESSAGES).map(|n| outbox::Outgoing::new("q", &n))).await;
    db.exec("UPDATE outbox SET deliveries_count = 3").await;
    let subscriber = subscriber.max_deliveries(3).lease_ttl(Duration::from_secs(10));
    let running = db.app().async_settles(true).only([subscriber]).start().await.unwrap();
    db.drained().await;
    server.kill().unwrap();
    server.start_again().unwrap();
    assert_eq!(db.rows().await, 0, "no ack was undone");
    running.stop().await.unwrap();
    assert_eq!((runs(&probe).await, db.letters().await), (MESSAGES, 0));
    db.close().await;
}

#[tokio::test]
async fn by_default_no_crash_makes_an_acked_message_run_again() {
    let Some((server, db)) = server().await else { return };
    let (subscriber, probe) = probe::free("once", "q");
    let back = through_a_crash(&server, &db, db.app(), subscriber).await;
    assert_eq!((back, runs(&probe).await), (0, MESSAGES));
    db.close().await;
}

#[tokio::test]
async fn an_ack_before_the_run_is_waited_for_all_the_same() {
    let Some((server, db)) = server().await else { return };
    let (subscriber, probe) = probe::free("first", "q");
    let subscriber = subscriber.ack(AckPolicy::AckFirst);
    let back = through_a_crash(&server, &db, db.app().async_settles(true), subscriber).await;
    assert_eq!((back, runs(&probe).await), (0, MESSAGES));
    db.close().await;
}

#[subscriber("q")]
async fn booked(n: i64, mut tx: Tx<sqlx::Postgres>) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO booked VALUES ($1)").bind(n).execute(&mut *tx).await?;
    Ok(())
}

#[tokio::test]
async fn a_transaction_that_a_handler_took_is_waited_for_all_the_same() {
    let Some((server, db)) = server().await else { return };
    db.exec("CREATE TABLE booked (n bigint)").await;
    let app = db.app().async_settles(true);
    let back = through_a_crash(&server, &db, app, booked::subscriber()).await;
    let kept = db.int("SELECT count(DISTINCT n) FROM booked").await;
    assert_eq!((back, kept, db.int("SELECT count(*) FROM booked").await), (0, MESSAGES, MESSAGES));
    db.close().await;
}

async fn runs(probe: &Probe) -> i64 {
    i64::try_from(probe.more().await.len()).unwrap()
}

/// The server is killed when all is handled. Returns how many rows were back, when all
/// is handled once more.
async fn through_a_crash(server: &Server, db: &Db, app: App, subscriber: Subscriber) -> i64 {
    // Where the claim is kept and the ack is not, the lease has to end first. No lease ends
    // before the crash.
    let subscriber = subscriber.lease_ttl(Duration::from_secs(10));
    let running = app.only([subscriber]).start().await.unwrap();
    db.send_all((0..MESSAGES).map(|n| outbox::Outgoing::new("q", &n))).await;
    db.drained().await;
    server.kill().unwrap();
    server.start_again().unwrap();
    let back = db.rows().await;
    db.drained().await;
    running.stop().await.unwrap();
    back
}
