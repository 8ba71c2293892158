//! A dead-letter table that fails shows as growth, never as loss.

use outbox::schema::Database;
use outbox::testing::store::{Store, ack_publishing};
use outbox::{Outgoing, Published, TimerConflict};

use crate::bench::{Bench, SqlBench, Steps, TTL, death};

async fn a_missing_table_leaves_the_row_and_its_lease<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    let before = b.rows().await;
    b.break_dlq().await;
    assert!(b.store().bury(&[death(lease)]).await.is_err());
    assert_eq!(b.rows().await, before);
    b.mend_dlq().await;
    assert!(b.letters().await.is_empty());
}

/// Repeating the same call would not help: the engine lets the lease run out.
async fn a_missing_table_is_no_passing_error<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    b.break_dlq().await;
    let error = b.store().bury(&[death(lease)]).await.unwrap_err();
    assert!(!error.transient, "{error}");
    assert_eq!(error.action, "dead-letter");
}

async fn a_mended_table_takes_the_letter<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    b.break_dlq().await;
    assert!(b.store().bury(&[death(lease)]).await.is_err());
    b.mend_dlq().await;
    assert_eq!(b.store().bury(&[death(lease)]).await.unwrap(), [true]);
    assert_eq!(b.letters().await.len(), 1);
    b.assert_empty().await;
}

/// On SQLite the thread of its connection once ended with a panic, and the file stayed locked.
async fn a_table_that_comes_and_goes_stops_no_writing<B: Bench>(b: B) {
    for round in 0..20 {
        b.put_many("q", 2).await;
        let leases = b.take_many("q", 2).await;
        b.break_dlq().await;
        for _ in 0..2 {
            let error = b.store().bury(&[death(leases[0])]).await.unwrap_err();
            assert!(!error.transient, "round {round}: {error}");
        }
        assert_eq!(b.store().ack(&leases[1..]).await.unwrap(), [true], "round {round}");
        b.mend_dlq().await;
        assert_eq!(b.store().bury(&[death(leases[0])]).await.unwrap(), [true]);
    }
    b.assert_empty().await;
}

async fn the_row_comes_back_when_its_lease_runs_out<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    b.break_dlq().await;
    assert!(b.store().bury(&[death(lease)]).await.is_err());
    b.mend_dlq().await;
    assert!(b.claim(&["q"], 1).await.is_empty());
    b.age(TTL).await;
    assert_eq!(b.claim_ids(&["q"], 1).await, [id]);
}

async fn other_settles_go_on<B: Bench>(b: B) {
    b.put_many("q", 2).await;
    let leases = b.take_many("q", 2).await;
    b.break_dlq().await;
    assert!(b.store().bury(&[death(leases[0])]).await.is_err());
    assert_eq!(b.store().ack(&leases[1..]).await.unwrap(), [true]);
    b.put("q").await;
    assert_eq!(b.claim(&["q"], 1).await.len(), 1);
}

async fn one_refused_letter_leaves_the_whole_batch<B: Bench>(b: B) {
    for queue in ["x", "poison", "y"] {
        b.send(Outgoing::new(queue, &1)).await;
    }
    let claimed = b.claim(&["x", "poison", "y"], 3).await;
    let deaths: Vec<_> = claimed.iter().map(|one| death(crate::bench::lease(one))).collect();
    let before = b.rows().await;
    b.refuse_letters_of("poison").await;
    let error = b.store().bury(&deaths).await.unwrap_err();
    assert!(!error.transient, "{error}");
    assert_eq!(b.rows().await, before);
    assert!(b.letters().await.is_empty());
}

async fn without_a_table_its_absence_is_no_error<B: Bench>(b: B) {
    b.put("q").await;
    b.break_dlq().await;
    let without = b.without_dlq();
    let lease = without.take("q").await;
    assert_eq!(without.store().bury(&[death(lease)]).await.unwrap(), [true]);
    b.assert_empty().await;
}

/// A trigger that leaves out what is written of `poison`.
async fn leave_out<B: SqlBench>(b: &B, table: &str) {
    b.execute(&match B::DATABASE {
        Database::Postgres => format!(
            "CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 RETURN CASE NEW.queue WHEN 'poison' THEN NULL ELSE NEW END; END $$;
             CREATE TRIGGER leave_out BEFORE INSERT ON {table}
                 FOR EACH ROW EXECUTE FUNCTION leave_out()"
        ),
        _ => format!(
            "CREATE TRIGGER leave_out BEFORE INSERT ON {table} WHEN NEW.queue = 'poison'
                 BEGIN SELECT RAISE(IGNORE); END"
        ),
    })
    .await;
}

/// As somebody's filter against duplicates does. The row is the only copy.
async fn a_letter_that_a_trigger_leaves_out_is_not_lost<B: SqlBench>(b: B) {
    for queue in ["x", "poison", "y"] {
        b.send(Outgoing::new(queue, &1)).await;
    }
    let claimed = b.claim(&["x", "poison", "y"], 3).await;
    let deaths: Vec<_> = claimed.iter().map(|one| death(crate::bench::lease(one))).collect();
    let before = b.rows().await;
    leave_out(&b, "outbox_dlq").await;
    let error = b.store().bury(&deaths).await.unwrap_err();
    assert!(!error.transient && error.to_string().contains("trigger"), "{error}");
    assert_eq!(b.rows().await, before);
    assert!(b.letters().await.is_empty());
    assert_eq!(b.store().bury(&deaths[..1]).await.unwrap(), [true]);
    assert_eq!(b.letters().await.len(), 1);
    // Of many that follow each other.
    b.put_many("poison", 100).await;
    let leases = b.take_many("poison", 100).await;
    let deaths: Vec<_> = leases.into_iter().map(death).collect();
    let before = b.rows().await;
    assert!(b.store().bury(&deaths).await.is_err());
    assert_eq!((b.rows().await, b.letters().await.len()), (before, 1));
}

/// A legal hold, perhaps.
async fn a_row_that_a_trigger_keeps_has_no_letter<B: SqlBench>(b: B) {
    b.put_many("hold", 100).await;
    let leases = b.take_many("hold", 100).await;
    b.execute(match B::DATABASE {
        Database::Postgres => {
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RETURN NULL; END $$;
             CREATE TRIGGER keep BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION keep()"
        }
        _ => "CREATE TRIGGER keep BEFORE DELETE ON outbox BEGIN SELECT RAISE(IGNORE); END",
    })
    .await;
    let before = b.rows().await;
    for some in [&leases[..1], &leases] {
        let deaths: Vec<_> = some.iter().copied().map(death).collect();
        let buried = b.store().bury(&deaths).await;
        assert!(!buried.is_ok_and(|hit| hit.contains(&true)));
        assert_eq!((b.rows().await, b.letters().await.len()), (before.clone(), 0));
    }
}

/// The row that it is returned for is all that is left of it, and nobody is told what became of a
/// timer of its.
async fn a_returned_message_that_a_trigger_leaves_out_is_not_lost<B: SqlBench>(b: B) {
    b.put_many("q", 2).await;
    let leases = b.take_many("q", 2).await;
    leave_out(&b, "outbox").await;
    let before = b.rows().await;
    let to = |queue| Outgoing::new(queue, &1);
    let timer = || to("poison").timer_id("t");
    for messages in [
        vec![to("y"), to("poison")],
        vec![to("y"), timer()],
        vec![to("y").timer_id("t"), timer()],
        vec![timer().on_conflict(TimerConflict::Extend)],
    ] {
        let acks = [(leases[0], vec![to("x")]), (leases[1], messages)];
        let error = ack_publishing(b.store(), b.publisher(), acks).await.unwrap_err();
        assert!(!error.transient && error.to_string().contains("trigger"), "{error}");
        assert_eq!(b.rows().await, before);
    }
}

/// As one that comes while nothing leaves it out.
async fn a_returned_timer_of_a_live_one_is_no_message_that_a_trigger_leaves_out<B: SqlBench>(b: B) {
    let timer = || Outgoing::new("poison", &1).timer_id("t");
    b.send(timer()).await;
    let live = b.rows().await;
    leave_out(&b, "outbox").await;
    b.put_many("q", 2).await;
    let leases = b.take_many("q", 2).await;
    let ack = async |lease, message| {
        let acks = [(lease, vec![message])];
        ack_publishing(b.store(), b.publisher(), acks).await.unwrap()
    };
    assert_eq!(ack(leases[0], timer()).await, [true]);
    // Somebody works on it.
    b.take("poison").await;
    let moved = timer().delay(TTL).on_conflict(TimerConflict::Extend);
    assert_eq!(ack(leases[1], moved).await, [true]);
    assert_eq!(b.rows().await.len(), live.len());
}

async fn a_returned_timer_whose_move_a_trigger_leaves_out_is_not_lost<B: SqlBench>(b: B) {
    let timer = |n: i32| Outgoing::new("next", &n).timer_id("t").delay(n.unsigned_abs() * TTL);
    b.send(timer(2)).await;
    let when = "NEW.acquired_token IS NULL AND OLD.acquired_token IS NULL";
    b.execute(&if B::DATABASE == Database::Postgres {
        format!(
            "CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
             CREATE TRIGGER stay BEFORE UPDATE ON outbox FOR EACH ROW \
             WHEN ({when} AND NEW.payload <> OLD.payload) EXECUTE FUNCTION stay()"
        )
    } else {
        format!(
            "CREATE TRIGGER stay BEFORE UPDATE ON outbox WHEN {when} \
             BEGIN SELECT RAISE(IGNORE); END"
        )
    })
    .await;
    b.put_many("q", 2).await;
    let leases = b.take_many("q", 2).await;
    let moved = |n| timer(n).on_conflict(TimerConflict::Extend);
    let ack =
        async |lease, n| ack_publishing(b.store(), b.publisher(), [(lease, vec![moved(n)])]).await;
    let error = ack(leases[0], 3).await.unwrap_err();
    assert!(!error.transient && error.to_string().contains("trigger"), "{error}");
    assert_eq!(ack(leases[1], 1).await.unwrap(), [true], "it moves nothing");
    assert_eq!(b.rows().await.len(), 2);
}

async fn a_published_message_that_a_trigger_leaves_out_is_no_duplicate<B: SqlBench>(b: B) {
    leave_out(&b, "outbox").await;
    let to = |queue| Outgoing::new(queue, &1);
    for message in [to("poison"), to("poison").delay(TTL)] {
        let mut tx = b.begin().await;
        let refused = b.publisher().send(&mut tx, message).await.unwrap_err();
        assert!(refused.to_string().contains("trigger"), "{refused}");
        b.rollback(tx).await;
    }
    let timer = || to("x").timer_id("t");
    let moved = || timer().on_conflict(TimerConflict::Extend);
    for messages in [
        vec![to("poison"), to("poison")],
        vec![to("x"), to("poison")],
        vec![timer(), to("poison")],
        vec![moved(), to("poison"), to("y")],
    ] {
        let mut tx = b.begin().await;
        let refused = b.publisher().publish_batch(&mut tx, messages).await.unwrap_err();
        assert!(refused.to_string().contains("trigger"), "{refused}");
        b.rollback(tx).await;
    }
    assert_eq!(b.send(to("poison").timer_id("t")).await, Published::Duplicate);
    b.assert_empty().await;
}

mod on_databases {
    use super::*;

    cases! {
        databases only, "memory has no triggers":
        a_letter_that_a_trigger_leaves_out_is_not_lost,
        a_row_that_a_trigger_keeps_has_no_letter,
        a_returned_message_that_a_trigger_leaves_out_is_not_lost,
        a_returned_timer_of_a_live_one_is_no_message_that_a_trigger_leaves_out,
        a_returned_timer_whose_move_a_trigger_leaves_out_is_not_lost,
        a_published_message_that_a_trigger_leaves_out_is_no_duplicate,
    }
}

cases! {
    a_missing_table_leaves_the_row_and_its_lease,
    a_missing_table_is_no_passing_error,
    a_mended_table_takes_the_letter,
    a_table_that_comes_and_goes_stops_no_writing,
    the_row_comes_back_when_its_lease_runs_out,
    other_settles_go_on,
    one_refused_letter_leaves_the_whole_batch,
    without_a_table_its_absence_is_no_error,
}
