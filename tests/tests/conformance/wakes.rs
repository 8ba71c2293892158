//! A sleeping engine is woken by whatever brings it rows, whatever its table is
//! called.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use outbox::schema::migrate_tables;
use outbox::testing::store::{Store, Wake, Wakes, ack_publishing};
use outbox::{Outgoing, TableNames};
use outbox_tests::backend::unique;
use outbox_tests::wait::soon;
use sqlx::postgres::PgListener;
use tokio::time::{sleep, timeout};

use crate::bench::{Bench, Postgres, SqlBench, Steps};

/// Waits for the wake of a queue. Benches share a channel, so there are others.
async fn woken(wakes: &mut impl Wakes, queue: &str) {
    let wake = async {
        loop {
            match wakes.next().await.unwrap() {
                Wake::All => break,
                Wake::Queue(woken) if woken == queue => break,
                Wake::Queue(_) => {}
            }
        }
    };
    soon("a wake", wake).await;
}

/// A subscription. One that has no answer in five seconds is given up, and asked for again.
async fn listening<S: Store>(store: &S) -> S::Wakes {
    let listens = async {
        loop {
            if let Ok(wakes) = store.listen().await {
                return wakes;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    soon("it listens", listens).await
}

/// A subscription of somebody who sleeps on this queue.
async fn asleep_on<S: Store>(store: &S, queue: &str) -> S::Wakes {
    let sleeps = async {
        loop {
            let mut wakes = listening(store).await;
            if wakes.sleep_on(&[queue]).await.is_ok() {
                return wakes;
            }
        }
    };
    soon("it sleeps", sleeps).await
}

/// A subscription of somebody who sleeps on a queue of its own, and has looked for what was
/// published before: whatever wakes it now is a wake.
async fn asleep<B: Bench>(b: &B) -> (<B::Store as Store>::Wakes, String) {
    let queue = unique("q");
    let mut wakes = asleep_on(b.store(), &queue).await;
    if b.store().wakes_only_sleepers() {
        woken(&mut wakes, &queue).await;
    }
    (wakes, queue)
}

async fn a_commit_wakes<B: Bench>(b: B) {
    let (mut wakes, queue) = asleep(&b).await;
    b.put(&queue).await;
    woken(&mut wakes, &queue).await;
    assert_eq!(b.claim(&[&queue], 1).await.len(), 1);
}

/// A reader that sleeps until its next due row has to hear of an earlier one.
async fn a_future_row_wakes<B: Bench>(b: B) {
    let (mut wakes, queue) = asleep(&b).await;
    b.send(Outgoing::new(&*queue, &1).delay(Duration::from_secs(60))).await;
    woken(&mut wakes, &queue).await;
    let ahead = b.claim_of(&[&queue], 0);
    assert!(b.taken(&ahead).await.next.is_some());
}

async fn a_batch_wakes<B: Bench>(b: B) {
    let (mut wakes, queue) = asleep(&b).await;
    b.send_batch(vec![Outgoing::new("other", &1), Outgoing::new(&*queue, &2)]).await;
    woken(&mut wakes, &queue).await;
    assert_eq!(b.claim(&[&queue], 10).await.len(), 1);
}

async fn an_ack_wakes_for_what_it_publishes<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    let (mut wakes, queue) = asleep(&b).await;
    let ack = [(lease, vec![Outgoing::new(&*queue, &1)])];
    ack_publishing(b.store(), b.publisher(), ack).await.unwrap();
    woken(&mut wakes, &queue).await;
    assert_eq!(b.claim(&[&queue], 10).await.len(), 1);
}

async fn every_listener_is_woken<B: Bench>(b: B) {
    let other = b.without_dlq();
    let (mut here, queue) = asleep(&b).await;
    let mut there = listening(other.store()).await;
    b.put(&queue).await;
    woken(&mut here, &queue).await;
    woken(&mut there, &queue).await;
    assert_eq!(other.pending(&queue, 10).await.len(), 1);
    drop(there);
    other.store().close().await;
}

/// PostgreSQL folds and cuts a channel that is not quoted.
async fn the_channel_is_the_table_s_name_as_it_is(b: Postgres) {
    for table in ["EventOutbox", "my \"out\"box", "a b; -- c", "Ausgangsfächer", "select"] {
        let names = TableNames::new(table).unwrap();
        assert_eq!(names.channel(), format!("outbox_{table}"));
        let other = b.with_names(names);
        migrate_tables(other.pool(), other.names()).await.unwrap();
        let mut python = PgListener::connect_with(b.pool()).await.unwrap();
        python.listen(&format!("outbox_{table}")).await.unwrap();
        let (mut wakes, queue) = asleep(&other).await;
        other.put(&queue).await;
        woken(&mut wakes, &queue).await;
        soon("a notification", async { while python.recv().await.unwrap().payload() != queue {} })
            .await;
        drop(wakes);
        other.store().close().await;
    }
}

async fn any_wake_of_another_program_is_only_a_hint(b: Postgres) {
    let mut wakes = listening(b.store()).await;
    let payload = unique(&"é\n'\"".repeat(500));
    b.execute(&format!("NOTIFY outbox_outbox; NOTIFY outbox_outbox, {}", quoted(&payload))).await;
    woken(&mut wakes, &payload).await;
    assert!(b.claim(&[&payload], 10).await.is_empty());
}

/// A subscriber that falls asleep or wakes up drops whatever is waited for.
async fn a_look_for_what_was_published_unnoticed_is_made_again_if_it_is_dropped(b: Postgres) {
    let queue = unique("q");
    let mut tx = b.begin().await;
    b.publisher().send(&mut tx, Outgoing::new(&*queue, &1)).await.unwrap();
    let mut wakes = asleep_on(b.store(), &queue).await;
    loop {
        let mut next = pin!(wakes.next());
        let polled = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await;
        let Poll::Ready(looked) = polled else { break };
        // A server that answers within the poll leaves nothing to drop: the next look comes
        // after 5 ms or a tenth of the time. Others notify on the channel, too.
        if looked.unwrap() == Wake::Queue(queue.clone()) {
            sleep(Duration::from_millis(100)).await;
        }
    }
    b.commit(tx).await;
    woken(&mut wakes, &queue).await;
}

/// Whoever falls asleep while it goes on looks once, and then when it is over: each look that is
/// told makes a claim.
async fn a_transaction_that_goes_on_wakes_nobody_again_and_again(b: Postgres) {
    let queue = unique("q");
    let mut tx = b.begin().await;
    b.publisher().send(&mut tx, Outgoing::new(&*queue, &1)).await.unwrap();
    let mut wakes = asleep_on(b.store(), &queue).await;
    for _ in 0..3 {
        woken(&mut wakes, &queue).await;
        wakes.sleep_on(&[]).await.unwrap();
        wakes.sleep_on(&[&queue]).await.unwrap();
    }
    woken(&mut wakes, &queue).await;
    let again = timeout(Duration::from_millis(300), woken(&mut wakes, &queue)).await;
    assert!(again.is_err(), "there is nothing new");
    b.commit(tx).await;
    woken(&mut wakes, &queue).await;
}

/// As an old primary whose address now leads to another server.
async fn a_server_that_takes_no_writes_is_not_listened_to(b: Postgres) {
    let fenced = b.with_settings([("default_transaction_read_only", "on")]);
    let told = fenced.store().listen().await.err().map(|error| error.to_string());
    assert!(told.as_ref().is_some_and(|why| why.contains("takes no writes")), "{told:?}");
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

cases! {
    databases only, "the memory store is driven by the test and never sleeps":
    a_commit_wakes,
    a_future_row_wakes,
    a_batch_wakes,
    an_ack_wakes_for_what_it_publishes,
    every_listener_is_woken,
}

mod channel {
    use super::*;

    cases! {
        postgres only, "only PostgreSQL has channels":
        the_channel_is_the_table_s_name_as_it_is,
        any_wake_of_another_program_is_only_a_hint,
        a_look_for_what_was_published_unnoticed_is_made_again_if_it_is_dropped,
        a_transaction_that_goes_on_wakes_nobody_again_and_again,
        a_server_that_takes_no_writes_is_not_listened_to,
    }
}
