//! Tables may have any name, in any schema.

use std::time::Duration;

use outbox::schema::{migrate_tables, validate_schema};
use outbox::testing::store::{Extend, Release, Store};
use outbox::{Outgoing, Published, TableNames, TimerConflict};

use crate::bench::{Bench, Postgres, SqlBench, Steps, death, lease, retry};

/// Makes the tables and runs every statement once.
pub async fn everything_works<B: SqlBench>(b: &B) {
    migrate_tables(b.pool(), b.names()).await.unwrap();
    migrate_tables(b.pool(), b.names()).await.unwrap();
    validate_schema(b.pool(), b.names(), true).await.unwrap();
    assert!(b.store().validate(true).await.unwrap().differences.is_empty());
    every_statement_works(b).await;
}

pub async fn every_statement_works<B: SqlBench>(b: &B) {
    let hour = Duration::from_secs(3600);
    let timer = |name: &str| Outgoing::new("q", &1).timer_id(name).delay(hour);
    let later = |name: &str| timer(name).delay(hour * 2).on_conflict(TimerConflict::Extend);
    b.put("q").await;
    let id = b.send(timer("t")).await.id().unwrap();
    assert_eq!(b.send(timer("t")).await, Published::Duplicate);
    assert_eq!(b.send(later("t")).await, Published::Extended(id));
    b.send_batch(vec![Outgoing::new("q", &1), Outgoing::new("q", &2)]).await;
    let batch = vec![Outgoing::new("q", &3), later("t").delay(hour * 3), timer("u")];
    assert_eq!(b.send_batch(batch).await[1], Published::Extended(id));
    for name in ["t", "u"] {
        let mut tx = b.begin().await;
        assert!(b.publisher().cancel_timer(&mut tx, "q", name).await.unwrap());
        b.commit(tx).await;
    }
    assert_eq!(b.pending("q", 10).await.len(), 4);

    let claim = b.claim_of(&["q"], 4);
    assert_eq!(b.claim_by(&claim).await.len(), 4);
    assert_eq!(b.store().abandon(&claim).await.unwrap(), 4);
    let claimed = b.claim(&["q"], 4).await;
    let leases: Vec<_> = claimed.iter().map(lease).collect();
    let extend = Extend { lease: leases[0], token: leases[0].token };
    assert_eq!(b.store().extend(&[extend]).await.unwrap(), [true]);
    assert_eq!(b.store().ack(&leases[..1]).await.unwrap(), [true]);
    assert_eq!(b.store().retry(&[retry(leases[1], hour)]).await.unwrap(), [true]);
    let release = Release { lease: leases[2], due_in: Some(hour), uncount: 0, claimed_at: None };
    assert_eq!(b.store().release(&[release]).await.unwrap(), [true]);
    assert_eq!(b.store().bury(&[death(leases[3])]).await.unwrap(), [true]);
    assert_eq!(b.rows().await.len(), 2);
    assert_eq!(b.letters().await.len(), 1);
    let ahead = b.claim_of(&["q"], 0);
    assert!(b.taken(&ahead).await.next.is_some());
}

async fn named<B: SqlBench>(b: B, table: &str, dlq: &str) {
    let names = TableNames::new(table).unwrap().with_dlq(dlq).unwrap();
    let other = b.with_names(names);
    everything_works(&other).await;
    other.store().close().await;
    // The tables of the ordinary names are others.
    b.assert_empty().await;
}

async fn names_may_hold_quotes<B: SqlBench>(b: B) {
    named(b, "my \"out\"box", "the 'dead' \"\"").await;
}

async fn names_may_hold_spaces_and_signs<B: SqlBench>(b: B) {
    named(b, " a -- b; DROP (c) ", "/* d */ $1 ?1 %s").await;
}

async fn names_may_be_upper_case<B: SqlBench>(b: B) {
    named(b, "EventOutbox", "EventDLQ").await;
}

async fn names_may_be_unicode<B: SqlBench>(b: B) {
    named(b, "Ausgangsfächer", "死信").await;
}

async fn names_may_be_keywords<B: SqlBench>(b: B) {
    named(b, "select", "unique").await;
}

async fn names_may_be_as_long_as_allowed<B: SqlBench>(b: B) {
    named(b, &"t".repeat(42), &"d".repeat(46)).await;
}

async fn two_outboxes_live_side_by_side<B: SqlBench>(b: B) {
    let names = TableNames::new("second").unwrap().with_dlq("second_dlq").unwrap();
    let other = b.with_names(names);
    migrate_tables(other.pool(), other.names()).await.unwrap();
    let (first, second) = (b.put("q").await, other.put("q").await);
    assert_eq!(b.claim_ids(&["q"], 10).await, [first]);
    assert_eq!(other.claim_ids(&["q"], 10).await, [second]);
    other.store().close().await;
}

async fn queue_and_timer_may_have_255_characters<B: Bench>(b: B) {
    for text in ["q".repeat(255), "é".repeat(255), "\u{1f980}".repeat(255)] {
        let message = Outgoing::new(&*text, &1).timer_id(&*text);
        let id = b.send(message).await.id().unwrap();
        let published = b.send_batch(vec![Outgoing::new(&*text, &1).timer_id(&*text)]).await;
        assert_eq!(published, [Published::Duplicate]);
        let claimed = b.claim(&[&text], 10).await;
        assert_eq!((claimed[0].row.id, &claimed[0].row.queue), (id, &text));
        assert_eq!(claimed[0].row.timer_id.as_ref(), Some(&text));
        assert_eq!(b.store().bury(&[death(lease(&claimed[0]))]).await.unwrap(), [true]);
        assert_eq!(b.letters().await.last().unwrap().queue, text);
    }
}

async fn queues_may_hold_any_sign<B: Bench>(b: B) {
    let queues = ["a'b", "a\"b", "a\\b", "a,b", "{a}", "a\nb", " ", "%", "NULL", "\u{1}"];
    for queue in queues {
        b.put(queue).await;
    }
    b.send_batch(queues.iter().map(|&queue| Outgoing::new(queue, &1)).collect()).await;
    for queue in queues {
        assert_eq!(b.claim(&[queue], 10).await.len(), 2, "{queue:?}");
        assert_eq!(b.pending(queue, 10).await.len(), 2, "{queue:?}");
    }
}

async fn tables_may_be_in_a_named_schema(b: Postgres) {
    let odd = format!("{}_ \"odd\"", b.schema());
    let quoted = format!("\"{}\"", odd.replace('"', "\"\""));
    b.execute(&format!("CREATE SCHEMA {quoted}")).await;
    let names = TableNames::new("box").unwrap().in_schema(odd).unwrap().with_dlq("dead").unwrap();
    let other = b.with_names(names);
    everything_works(&other).await;
    other.store().close().await;
    b.execute(&format!("DROP SCHEMA {quoted} CASCADE")).await;
}

/// Hardened set-ups empty the search path; every name must then be qualified.
async fn an_empty_search_path_is_enough_for_a_named_schema(b: Postgres) {
    let names = TableNames::new("box").unwrap().in_schema(b.schema()).unwrap();
    let other = b.on_search_path("\"\"", names.with_dlq("dead").unwrap());
    everything_works(&other).await;
    other.store().close().await;
    other.pool().close().await;
}

cases! { queue_and_timer_may_have_255_characters, queues_may_hold_any_sign }

mod tables {
    use super::*;

    cases! {
        databases only, "memory has no tables to name":
        names_may_hold_quotes,
        names_may_hold_spaces_and_signs,
        names_may_be_upper_case,
        names_may_be_unicode,
        names_may_be_keywords,
        names_may_be_as_long_as_allowed,
        two_outboxes_live_side_by_side,
    }
}

mod schemas {
    use super::*;

    cases! {
        postgres only, "only PostgreSQL has schemas":
        tables_may_be_in_a_named_schema,
        an_empty_search_path_is_enough_for_a_named_schema,
    }
}
