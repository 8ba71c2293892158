//! Timers among the messages that are published by an ack: the same rules as in
//! a transaction, and the row that is acked no longer holds its name.

use std::time::Duration;

use outbox::testing::store::{Landed, Lease, Store, ack_publishing};
use outbox::{Outgoing, Published, TimerConflict};

use outbox_tests::wait::eventually;

use crate::bench::{Bench, Postgres, SqlBench, Steps, TTL, about, refenced, retry};

const HOUR: Duration = Duration::from_secs(3600);

fn timer(n: i32, delay: Duration) -> Outgoing {
    Outgoing::new("timers", &n).header("n", n).timer_id("t").delay(delay)
}

fn extending(n: i32, delay: Duration) -> Outgoing {
    timer(n, delay).on_conflict(TimerConflict::Extend)
}

async fn ack<B: Bench>(b: &B, lease: Lease, messages: Vec<Outgoing>) -> Landed {
    ack_publishing(b.store(), b.publisher(), [(lease, messages)]).await.unwrap()
}

/// A claimed row whose handler returns messages.
async fn handled<B: Bench>(b: &B) -> Lease {
    b.put("q").await;
    b.take("q").await
}

async fn a_free_name_is_inserted<B: Bench>(b: B) {
    let lease = handled(&b).await;
    assert_eq!(ack(&b, lease, vec![extending(1, HOUR)]).await, [true]);
    let rows = b.rows().await;
    assert_eq!((rows.len(), rows[0].timer_id.as_deref()), (1, Some("t")));
    about(b.due_in(rows[0].id).await, HOUR);
}

async fn a_taken_name_is_left_as_it_is<B: Bench>(b: B) {
    b.send(timer(1, HOUR)).await;
    let kept = b.rows().await;
    let lease = handled(&b).await;
    let messages = vec![timer(2, HOUR * 2), Outgoing::new("replies", &3)];
    assert_eq!(ack(&b, lease, messages).await, [true]);
    let rows = b.rows().await;
    assert_eq!(rows[..1], kept);
    assert_eq!((rows.len(), &*rows[1].queue), (2, "replies"));
}

async fn a_later_time_moves_the_row<B: Bench>(b: B) {
    let id = b.send(timer(1, HOUR)).await.id().unwrap();
    let lease = handled(&b).await;
    ack(&b, lease, vec![extending(2, HOUR * 2)]).await;
    let row = b.row(id).await;
    assert_eq!((row.payload, row.headers.unwrap()["n"].as_i64()), (b"2".to_vec(), Some(2)));
    about(b.due_in(id).await, HOUR * 2);
    assert_eq!(b.rows().await.len(), 1);
}

async fn an_earlier_time_changes_nothing<B: Bench>(b: B) {
    b.send(timer(1, HOUR * 2)).await;
    let before = b.rows().await;
    let lease = handled(&b).await;
    ack(&b, lease, vec![extending(2, HOUR)]).await;
    assert_eq!(b.rows().await, before);
}

async fn the_same_time_changes_nothing<B: Bench>(b: B) {
    let now = Duration::from_micros(b.now().await.unsigned_abs());
    let then = std::time::SystemTime::UNIX_EPOCH + now + HOUR;
    let at = |n: i32| {
        let timer = Outgoing::new("timers", &n).timer_id("t").at(then);
        timer.on_conflict(TimerConflict::Extend)
    };
    b.send(at(1)).await;
    let before = b.rows().await;
    let lease = handled(&b).await;
    assert_eq!(ack(&b, lease, vec![at(2)]).await, [true]);
    assert_eq!(b.rows().await, before);
}

/// One of them is moved; the other one's name is taken, and it is to be left alone.
async fn what_moves_one_timer_leaves_its_neighbours<B: Bench>(b: B) {
    let named = |queue: &str, name: &str, n: i32, delay| {
        Outgoing::new(queue, &n).timer_id(name).delay(delay)
    };
    let mut ids = Vec::new();
    for (queue, name) in [("timers", "a"), ("timers", "b"), ("others", "a")] {
        ids.push(b.send(named(queue, name, 1, HOUR)).await.id().unwrap());
    }
    let lease = handled(&b).await;
    let messages = vec![
        named("timers", "a", 2, HOUR * 2).on_conflict(TimerConflict::Extend),
        named("timers", "b", 2, HOUR * 2),
        named("others", "a", 2, HOUR * 2),
    ];
    assert_eq!(ack(&b, lease, messages).await, [true]);
    for (id, payload, due) in [(ids[0], b"2", HOUR * 2), (ids[1], b"1", HOUR), (ids[2], b"1", HOUR)]
    {
        assert_eq!(b.row(id).await.payload, payload);
        about(b.due_in(id).await, due);
    }
    assert_eq!(b.rows().await.len(), 3);
}

async fn a_later_time_gives_a_fresh_retry_budget<B: Bench>(b: B) {
    let id = b.send(timer(1, Duration::ZERO)).await.id().unwrap();
    let failed = b.take("timers").await;
    b.store().retry(&[retry(failed, HOUR)]).await.unwrap();
    b.age(HOUR / 2).await;
    let lease = handled(&b).await;
    ack(&b, lease, vec![extending(2, HOUR * 2)]).await;
    let row = b.row(id).await;
    assert_eq!((row.attempts, row.first, row.last, row.deliveries), (0, None, None, 0));
    about(b.now().await - row.created, Duration::ZERO);
}

async fn a_name_that_somebody_works_on_stays_theirs<B: Bench>(b: B) {
    b.send(timer(1, Duration::ZERO)).await;
    let theirs = b.take("timers").await;
    let kept = b.row(theirs.id).await;
    for message in [timer(2, HOUR), extending(3, HOUR)] {
        let lease = handled(&b).await;
        assert_eq!(ack(&b, lease, vec![message]).await, [true]);
    }
    assert_eq!(b.rows().await, [kept]);
    assert_eq!(b.store().ack(&[theirs]).await.unwrap(), [true]);
}

/// How a handler runs every minute: its own row is gone when the new one comes.
async fn a_timer_sets_itself_again<B: Bench>(b: B) {
    for next in [timer(2, HOUR), extending(3, HOUR)] {
        let published = b.send(timer(1, Duration::ZERO)).await;
        assert!(matches!(published, Published::Inserted(_)));
        let lease = b.take("timers").await;
        assert_eq!(ack(&b, lease, vec![next]).await, [true]);
        let rows = b.rows().await;
        assert_eq!(rows.len(), 1);
        assert_ne!(rows[0].id, lease.id);
        assert_ne!(rows[0].payload, b"1");
        assert_eq!((rows[0].timer_id.as_deref(), rows[0].token), (Some("t"), None));
        about(b.due_in(rows[0].id).await, HOUR);
        b.age(HOUR).await;
        let last = b.take("timers").await;
        assert_eq!(b.store().ack(&[last]).await.unwrap(), [true]);
    }
}

/// Each the one of its neighbour, whose row is gone when the new one comes.
async fn many_timers_set_each_other_again_at_once<B: Bench>(b: B) {
    let named = |n: i32| Outgoing::new("timers", &n).timer_id(format!("t{n}"));
    b.send_batch((0..100).map(named).collect()).await;
    let held = b.take_many("timers", 100).await;
    let again = |n: usize| vec![named(i32::try_from((n + 1) % 100).unwrap()).delay(HOUR)];
    let acks = held.iter().enumerate().map(|(n, &lease)| (lease, again(n)));
    let landed = ack_publishing(b.store(), b.publisher(), acks).await.unwrap();
    assert_eq!(landed, vec![true; 100]);
    let rows = b.rows().await;
    assert_eq!(rows.len(), 100);
    assert!(rows.iter().all(|row| row.token.is_none() && row.deliveries == 0));
    assert!(b.claim(&["timers"], 100).await.is_empty());
}

async fn a_lost_lease_leaves_the_timer_alone<B: Bench>(b: B) {
    let id = b.send(timer(1, HOUR)).await.id().unwrap();
    let lease = handled(&b).await;
    let before = b.rows().await;
    assert_eq!(ack(&b, refenced(lease), vec![extending(2, HOUR * 2)]).await, [false]);
    assert_eq!(b.rows().await, before);
    about(b.due_in(id).await, HOUR);
}

/// The row was taken over: whoever has it now will set the timer.
async fn a_timer_that_lost_its_lease_does_not_set_itself<B: Bench>(b: B) {
    b.send(timer(1, Duration::ZERO)).await;
    let old = b.take("timers").await;
    b.age(TTL).await;
    b.take("timers").await;
    let before = b.rows().await;
    assert_eq!(ack(&b, old, vec![extending(2, HOUR)]).await, [false]);
    assert_eq!(b.rows().await, before);
}

async fn each_queue_has_its_own_names<B: Bench>(b: B) {
    b.send(timer(1, HOUR)).await;
    let lease = handled(&b).await;
    let other = Outgoing::new("others", &2).timer_id("t");
    ack(&b, lease, vec![other, timer(3, HOUR)]).await;
    let queues: Vec<_> = b.rows().await.into_iter().map(|row| row.queue).collect();
    assert_eq!(queues, ["timers", "others"]);
}

/// Acks a row that publishes this, while a transaction is open that commits when it is waited for.
async fn ack_behind(
    b: &Postgres,
    mut tx: <Postgres as Bench>::Tx,
    message: impl Fn() -> Outgoing,
) -> Landed {
    let lease = handled(b).await;
    // It gives way after half a second: to be asked again.
    let ack = async {
        loop {
            let acks = [(lease, vec![message()])];
            match ack_publishing(b.store(), b.publisher(), acks).await {
                Err(late) if late.transient => {}
                answer => return answer.unwrap(),
            }
        }
    };
    let pid = sqlx::query_scalar("SELECT pg_backend_pid()");
    let pid: i32 = pid.fetch_one(&mut *tx).await.unwrap();
    let commit = async {
        let waiting = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE {pid} = ANY(pg_blocking_pids(pid))"
        );
        eventually("the ack waits", async || b.number(&waiting).await > 0).await;
        b.commit(tx).await;
    };
    tokio::join!(ack, commit).0
}

/// What it waits for is not in the table yet where it looks.
async fn a_name_that_is_taken_while_an_ack_waits_stays_theirs(b: Postgres) {
    for (conflict, delay) in [(TimerConflict::Ignore, HOUR * 2), (TimerConflict::Extend, HOUR / 2)]
    {
        let mut tx = b.begin().await;
        b.publisher().send(&mut tx, timer(1, HOUR)).await.unwrap();
        let message = || timer(2, delay).on_conflict(conflict);
        assert_eq!(ack_behind(&b, tx, message).await, [true]);
        let rows = b.rows().await;
        assert_eq!((rows.len(), &*rows[0].payload), (1, &b"1"[..]));
        about(b.due_in(rows[0].id).await, HOUR);
        b.execute("DELETE FROM outbox").await;
    }
}

async fn a_timer_that_is_set_while_an_ack_waits_is_moved(b: Postgres) {
    let mut tx = b.begin().await;
    b.publisher().send(&mut tx, timer(1, HOUR)).await.unwrap();
    assert_eq!(ack_behind(&b, tx, || extending(2, HOUR * 2)).await, [true]);
    let rows = b.rows().await;
    assert_eq!((rows.len(), &*rows[0].payload), (1, &b"2"[..]));
    about(b.due_in(rows[0].id).await, HOUR * 2);
}

async fn a_timer_that_is_claimed_while_an_ack_waits_stays_theirs(b: Postgres) {
    let id = b.send(timer(1, HOUR)).await.id().unwrap();
    let mut tx = b.begin().await;
    let claim = "UPDATE outbox SET acquired_at = now(), acquired_token = gen_random_uuid()";
    sqlx::query(claim).execute(&mut *tx).await.unwrap();
    assert_eq!(ack_behind(&b, tx, || extending(2, HOUR * 2)).await, [true]);
    let row = b.row(id).await;
    assert_eq!((&*row.payload, row.token.is_some()), (&b"1"[..], true));
    about(b.due_in(id).await, HOUR);
}

mod behind_others {
    use super::*;

    cases! {
        postgres only, "elsewhere nobody's transaction is waited for in the midst of a statement":
        a_name_that_is_taken_while_an_ack_waits_stays_theirs,
        a_timer_that_is_set_while_an_ack_waits_is_moved,
        a_timer_that_is_claimed_while_an_ack_waits_stays_theirs,
    }
}

cases! {
    a_free_name_is_inserted,
    a_taken_name_is_left_as_it_is,
    a_later_time_moves_the_row,
    an_earlier_time_changes_nothing,
    the_same_time_changes_nothing,
    what_moves_one_timer_leaves_its_neighbours,
    a_later_time_gives_a_fresh_retry_budget,
    a_name_that_somebody_works_on_stays_theirs,
    a_timer_sets_itself_again,
    many_timers_set_each_other_again_at_once,
    a_lost_lease_leaves_the_timer_alone,
    a_timer_that_lost_its_lease_does_not_set_itself,
    each_queue_has_its_own_names,
}
