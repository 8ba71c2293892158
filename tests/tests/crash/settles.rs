//! Statements of the store, and which of them a crash may undo.

use outbox::testing::store::Commits;
use outbox_tests::wait::eventually;

use super::books::Books;
use super::statements::Settle;
use super::{TRIES, server};

/// Rows of a claim.
const ROWS: usize = 3;

/// The claim is the last thing that the server answers.
#[tokio::test]
async fn a_claim_that_a_crash_undoes_is_made_again_and_its_leases_settle_nothing() {
    let Some((server, db)) = server().await else { return };
    let mut books = Books::open(&server, &db, Commits::Default).await;
    let mut undone = 0;
    for _ in 0..TRIES {
        books.publish(2 * ROWS as i64).await;
        let held = books.claim(ROWS).await;
        books.settle(Settle::Retry, &held[..1]).await;
        let lost = books.claim(ROWS).await;
        if books.crash().await != ["claim"] {
            books.db.exec("DELETE FROM outbox").await;
            books.age().await;
            continue;
        }
        undone += 1;
        let rows = books.db.rows().await;
        assert_eq!(Settle::Ack.run(&books, &lost).await, [false; ROWS]);
        assert_eq!(Settle::Bury.run(&books, &lost).await, [false; ROWS]);
        assert_eq!(books.db.rows().await, rows, "a lease that is no more deletes nothing");
        // Without waiting for any lease to end.
        let ids = |leases: &[outbox::testing::store::Lease]| {
            leases.iter().map(|lease| lease.id).collect::<Vec<_>>()
        };
        let again = books.claim(ROWS).await;
        assert_eq!(ids(&again), ids(&lost));
        let first = "SELECT min(deliveries_count) FROM outbox WHERE acquired_token IS NOT NULL";
        assert_eq!(books.db.int(first).await, 1, "the claim that was undone does not count");
        books.settle(Settle::Ack, &again).await;
        books.settle(Settle::Ack, &held[1..]).await;
        books.db.exec("DELETE FROM outbox").await;
        books.age().await;
    }
    assert!(undone > 0, "no claim was undone, so this proves nothing");
    println!("{undone} of {TRIES} claims were undone");
    db.close().await;
}

/// After each settle comes a claim, which the crash does undo.
#[tokio::test]
async fn a_settle_that_was_answered_is_never_undone() {
    let Some((server, db)) = server().await else { return };
    let mut books = Books::open(&server, &db, Commits::Default).await;
    for settle in Settle::ALL {
        let undone = tried(&mut books, settle, |undone| undone == ["claim"]).await;
        println!("{}: undone {undone:?}", settle.name());
    }
    db.close().await;
}

#[tokio::test]
async fn an_asynchronous_settle_is_undone_whole_or_not_at_all() {
    let Some((server, db)) = server().await else { return };
    let mut books = Books::open(&server, &db, Commits::Async).await;
    for settle in Settle::ALL {
        let undone = tried(&mut books, settle, |undone| match settle {
            Settle::AckKept => undone == ["claim"],
            _ => undone.contains(&settle.name()),
        })
        .await;
        println!("{}: undone {undone:?}", settle.name());
    }
    // What is undone is delivered again.
    books.age().await;
    let (subscriber, _probe) = outbox_tests::probe::free("again", "q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    eventually("all are handled", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    db.close().await;
}

/// Publishes, claims, settles, claims more and crashes, until the crash undoes what it
/// is expected to.
async fn tried(
    books: &mut Books<'_>,
    settle: Settle,
    expected: impl Fn(&[&str]) -> bool,
) -> Vec<&'static str> {
    for _ in 0..TRIES {
        books.age().await;
        books.publish(2 * ROWS as i64).await;
        let held = books.claim(ROWS).await;
        books.settle(settle, &held).await;
        books.claim(ROWS).await;
        let undone = books.crash().await;
        if expected(&undone) {
            return undone;
        }
        println!("{}: the log was written just then: undone {undone:?}", settle.name());
    }
    panic!("{}: no crash undid what it should", settle.name());
}
