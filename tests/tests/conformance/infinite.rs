//! Times that are none: an operator who parks a message by writing `infinity` stops that
//! message and nothing else.

use std::time::{Duration, SystemTime};

use outbox::Outgoing;
use outbox::testing::store::{Claim, Expects, Release, Store};

use crate::bench::{Bench, Postgres, SqlBench, Sqlite, Steps, TTL, about, lease, retry};

const HOUR: Duration = Duration::from_secs(3600);

/// Held by nobody, from then on or since then.
async fn leased_since(b: &Postgres, id: i64, time: &str) {
    let set = format!(
        "UPDATE outbox SET acquired_at = '{time}', acquired_token = gen_random_uuid() WHERE id = {id}"
    );
    b.execute(&set).await;
}

async fn a_lease_without_an_end_stops_no_claim_of_other_rows(b: Postgres) {
    let ids = b.put_many("q", 2).await;
    leased_since(&b, ids[0], "infinity").await;
    // It gets less than it asks for, and so looks ahead.
    let taken = b.taken(&b.claim_of(&["q"], 10)).await;
    assert_eq!(taken.rows.iter().map(|one| one.row.id).collect::<Vec<_>>(), [ids[1]]);
    let next = b.taken(&b.claim_of(&["q"], 0)).await.next.expect("the lease just taken");
    about(i64::try_from(next.as_micros()).unwrap(), TTL);
    b.execute(&format!("DELETE FROM outbox WHERE id = {}", ids[1])).await;
    assert_eq!(b.taken(&b.claim_of(&["q"], 0)).await.next, None);
}

async fn a_lease_without_a_beginning_is_taken_over(b: Postgres) {
    let id = b.put("q").await;
    leased_since(&b, id, "-infinity").await;
    assert!(b.taken(&b.claim_of(&["q"], 0)).await.rows.is_empty());
    assert_eq!(b.claim_ids(&["q"], 10).await, [id]);
}

async fn a_row_that_was_always_due_is_counted_and_has_no_age(b: Postgres) {
    let ids = b.put_many("q", 2).await;
    b.age(HOUR).await;
    let set = format!("UPDATE outbox SET next_attempt_at = '-infinity' WHERE id = {}", ids[1]);
    b.execute(&set).await;
    let look = async || b.store().depths(&["q".to_owned()], 100).await.unwrap().remove(0);
    let depth = look().await;
    assert_eq!((depth.backlog, depth.due), (2, 2));
    about(i64::try_from(depth.oldest_age.as_micros()).unwrap(), HOUR);
    b.execute(&format!("DELETE FROM outbox WHERE id = {}", ids[0])).await;
    assert_eq!((look().await.due, look().await.oldest_age), (1, Duration::ZERO));
    assert_eq!(b.claim_ids(&["q"], 10).await, [ids[1]]);
}

async fn a_row_that_is_never_due_is_left_where_it_is(b: Postgres) {
    let id = b.put("q").await;
    b.execute("UPDATE outbox SET next_attempt_at = 'infinity'").await;
    let taken = b.taken(&b.claim_of(&["q"], 10)).await;
    assert!(taken.rows.is_empty() && taken.next.is_none(), "{taken:?}");
    let depth = b.store().depths(&["q".to_owned()], 100).await.unwrap().remove(0);
    assert_eq!((depth.backlog, depth.due), (1, 0));
    b.execute("UPDATE outbox SET next_attempt_at = now()").await;
    assert_eq!(b.claim_ids(&["q"], 10).await, [id]);
}

/// Nothing in a row makes the statement fail that would take it, and others with it.
async fn what_cannot_be_counted_further_stops_no_claim(b: Postgres) {
    for expects in [Expects::Few, Expects::Many, Expects::Plenty] {
        let ids = b.put_many("q", 4).await;
        b.execute(&format!(
            "UPDATE outbox SET deliveries_count = 9223372036854775807 WHERE id = {}",
            ids[0]
        ))
        .await;
        // One more second, and there would be no such time.
        leased_since(&b, ids[1], "294276-12-31 23:59:59+00").await;
        let set = "UPDATE outbox SET id = -7, next_attempt_at = '-infinity' WHERE id = ";
        b.execute(&format!("{set}{}", ids[2])).await;
        let claim = Claim { expects, ..b.claim_of(&["q"], 10) };
        let mut taken = b.taken(&claim).await.rows;
        taken.sort_by_key(|one| one.row.id);
        let all: Vec<_> = taken.iter().map(|one| one.row.id).collect();
        assert_eq!(all, [-7, ids[0], ids[3]], "{expects:?}");
        assert_eq!(taken[1].row.deliveries_count, i64::MAX as u64);
        b.execute("TRUNCATE outbox").await;
    }
}

/// SQLite's times are numbers; one at their end is as good as infinite.
async fn what_cannot_be_counted_further_stops_nothing_in_a_file(b: Sqlite) {
    let ids = b.put_many("q", 4).await;
    let set = async |what: &str, id: i64| {
        b.execute(&format!("UPDATE outbox SET {what} WHERE id = {id}")).await;
    };
    set("deliveries_count = 9223372036854775807, attempts_count = 9223372036854775807", ids[0])
        .await;
    set("acquired_at = 9223372036854775807, acquired_token = zeroblob(16)", ids[1]).await;
    set("id = -7, next_attempt_at = -9223372036854775808", ids[2]).await;
    let depth = b.store().depths(&["q".to_owned()], 100).await.unwrap().remove(0);
    assert_eq!((depth.backlog, depth.due), (4, 3));
    let mut taken = b.taken(&b.claim_of(&["q"], 10)).await.rows;
    taken.sort_by_key(|one| one.row.id);
    assert_eq!(taken.iter().map(|one| one.row.id).collect::<Vec<_>>(), [-7, ids[0], ids[3]]);
    assert_eq!(taken[1].row.deliveries_count, i64::MAX as u64);
    let again = retry(lease(&taken[1]), Duration::ZERO);
    assert_eq!(b.store().retry(&[again]).await.unwrap(), [true]);
    b.execute(&format!("DELETE FROM outbox WHERE id <> {}", ids[1])).await;
    assert!(b.taken(&b.claim_of(&["q"], 10)).await.next.is_some());
}

/// Who reads a count below zero reads zero, and would have no end of tries.
async fn what_another_writer_counts_below_zero_is_counted_from_zero<B: SqlBench>(b: B) {
    for expects in [Expects::Few, Expects::Many, Expects::Plenty] {
        let id = b.put("q").await;
        let set = "UPDATE outbox SET attempts_count = -5, deliveries_count = -5 WHERE id = ";
        b.execute(&format!("{set}{id}")).await;
        let claim = Claim { expects, ..b.claim_of(&["q"], 10) };
        let again = retry(lease(&b.taken(&claim).await.rows[0]), HOUR);
        assert_eq!(b.store().retry(&[again]).await.unwrap(), [true]);
        let row = b.row(id).await;
        assert_eq!((row.attempts, row.deliveries), (1, 1), "{expects:?}");
    }
}

/// Or it would look as if it had waited since 1970.
async fn what_was_always_due_in_a_file_has_no_age(b: Sqlite) {
    b.put_many("q", 2).await;
    let first = "SELECT min(id) FROM outbox";
    b.execute(&format!(
        "UPDATE outbox SET next_attempt_at = -9223372036854775808 WHERE id = ({first})"
    ))
    .await;
    let depth = async || b.store().depths(&["q".to_owned()], 100).await.unwrap().remove(0);
    let both = depth().await;
    assert!(both.due == 2 && both.oldest_age < Duration::from_secs(60), "{both:?}");
    b.execute("DELETE FROM outbox WHERE next_attempt_at > 0").await;
    assert_eq!((depth().await.due, depth().await.oldest_age), (1, Duration::ZERO));
}

/// A drain gives it back.
async fn what_was_always_due_still_is_when_it_comes_back(b: Sqlite) {
    b.put("q").await;
    b.execute("UPDATE outbox SET next_attempt_at = -9223372036854775808").await;
    let lease = b.take("q").await;
    let back = Release { lease, due_in: None, uncount: 1, claimed_at: None };
    assert_eq!(b.store().release(&[back]).await.unwrap(), [true]);
    let depth = b.store().depths(&["q".to_owned()], 100).await.unwrap().remove(0);
    assert_eq!((depth.due, depth.oldest_age), (1, Duration::ZERO), "{depth:?}");
    let always = "SELECT count(*) FROM outbox WHERE next_attempt_at = -9223372036854775808";
    assert_eq!(b.number(always).await, 1);
}

/// It is the earliest time that a message can be given.
async fn what_is_published_for_1970_has_no_age<B: Bench>(b: B) {
    b.send(Outgoing::new("q", &1).at(SystemTime::UNIX_EPOCH)).await;
    let depth = b.store().depths(&["q".to_owned()], 100).await.unwrap().remove(0);
    assert_eq!((depth.due, depth.oldest_age), (1, Duration::ZERO), "{depth:?}");
}

/// What is leased is not to be lost for what comes after it.
async fn a_look_ahead_that_fails_keeps_no_row_back(b: Sqlite) {
    let id = b.put("q").await;
    b.execute(
        "DROP TABLE outbox_paused;
         CREATE VIEW outbox_paused AS SELECT 'x' AS queue WHERE (SELECT abs(-9223372036854775807 - count(*))
             FROM (SELECT 1 FROM outbox WHERE acquired_token IS NOT NULL LIMIT 1)) = 0",
    )
    .await;
    let taken = b.taken(&b.claim_of(&["q"], 10)).await;
    assert_eq!(taken.rows.iter().map(|one| one.row.id).collect::<Vec<_>>(), [id]);
    assert!(taken.next.is_some());
}

mod everywhere {
    use super::*;

    cases! { what_is_published_for_1970_has_no_age }
}

mod in_both {
    use super::*;

    cases! {
        databases only, "memory's counts are never below zero":
        what_another_writer_counts_below_zero_is_counted_from_zero,
    }
}

mod in_a_file {
    use super::*;

    cases! {
        sqlite only, "the others have their own":
        what_cannot_be_counted_further_stops_nothing_in_a_file,
        what_was_always_due_in_a_file_has_no_age,
        what_was_always_due_still_is_when_it_comes_back,
        a_look_ahead_that_fails_keeps_no_row_back,
    }
}

cases! {
    postgres only, "SQLite's times are numbers, and memory's are finite":
    a_lease_without_an_end_stops_no_claim_of_other_rows,
    a_lease_without_a_beginning_is_taken_over,
    a_row_that_was_always_due_is_counted_and_has_no_age,
    a_row_that_is_never_due_is_left_where_it_is,
    what_cannot_be_counted_further_stops_no_claim,
}
