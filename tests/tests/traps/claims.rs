//! A worker asks the database when there is something to ask, and no more.

use outbox::{Outgoing, Subscriber};
use outbox_tests::capture;
use outbox_tests::db::Db;
use outbox_tests::probe::{free, gated};
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};
use serde_json::Value;
use sqlx::AssertSqlSafe;

use super::HOUR;

on_both!(
    leases_reach_max_workers_and_one_batch_and_no_more,
    a_freed_place_is_no_claim_of_its_own,
    publishing_to_a_worker_that_is_full_claims_nothing,
);

mod server {
    use super::*;

    on_postgres!(
        a_wake_of_one_queue_asks_for_no_other_queue,
        a_claim_of_several_queues_reads_each_index_range_in_order,
    );
    use super::{
        a_claim_of_several_queues_reads_each_index_range_in_order,
        a_wake_of_one_queue_asks_for_no_other_queue,
    };
}

/// Nothing but wakes and finished handlers makes it claim.
fn unpolled(subscriber: Subscriber) -> Subscriber {
    subscriber.min_poll(HOUR).max_poll(HOUR)
}

fn claims(queue: &str) -> usize {
    capture::names(queue).iter().filter(|event| *event == "fetched").count()
}

/// Rows that its claims have brought, as far as that is told.
fn fetched(queue: &str) -> usize {
    let told = capture::events(queue).into_iter().filter(|line| line.event() == Some("fetched"));
    told.map(|line| line.get("count").unwrap().parse::<usize>().unwrap()).sum()
}

async fn publish_together(db: &Db, queue: &str, messages: i64) {
    db.send_all((0..messages).map(|n| Outgoing::new(queue, &n))).await;
}

async fn leases_reach_max_workers_and_one_batch_and_no_more(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    publish_together(db, "q", 100).await;
    let running = db.app().only([subscriber.max_workers(4).fetch_batch(6)]).start().await.unwrap();
    eventually("a batch waits", async || db.leased().await == 10).await;
    for _ in 0..20 {
        db.publish("q", 7).await;
        assert_eq!((db.leased().await, probe.most()), (10, 4));
    }
    probe.let_end(1000);
    db.drained().await;
    running.stop().await.unwrap();
}

async fn a_freed_place_is_no_claim_of_its_own(db: &Db) {
    capture::start();
    let queue = format!("freed {}", db.url);
    let (subscriber, _probe) = free("it", &queue);
    publish_together(db, &queue, 400).await;
    let running = db.app().only([unpolled(subscriber.fetch_batch(20))]).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    // At least half a batch each, and a few that found nothing.
    assert!(claims(&queue) <= 400 / 10 + 5, "{} claims", claims(&queue));
}

async fn publishing_to_a_worker_that_is_full_claims_nothing(db: &Db) {
    capture::start();
    let queue = format!("full {}", db.url);
    let (subscriber, probe) = gated("it", &queue);
    publish_together(db, &queue, 2).await;
    let full = unpolled(subscriber.max_workers(1).fetch_batch(1));
    let beside = format!("witness {}", db.url);
    let (witness, sees) = free("witness", &beside);
    let running = db.app().only([full, unpolled(witness)]).start().await.unwrap();
    eventually("it is full", async || fetched(&queue) == 2).await;
    let before = claims(&queue);
    for n in 0..20 {
        db.publish(&queue, n).await;
    }
    // Wakes are told in their order.
    db.publish(&beside, 0).await;
    sees.start().await;
    assert_eq!(claims(&queue), before);
    // One message more passes, then all do.
    probe.let_end(1);
    eventually("a place is filled", async || claims(&queue) == before + 1).await;
    probe.let_end(1000);
    db.drained().await;
    running.stop().await.unwrap();
    // One of each, and a few that found nothing.
    assert!(claims(&queue) <= before + 20 + 5, "{} claims", claims(&queue));
}

async fn a_wake_of_one_queue_asks_for_no_other_queue(db: &Db) {
    capture::start();
    let (busy, idle) = (format!("busy {}", db.url), format!("idle {}", db.url));
    let (one, probe) = free("one", &busy);
    let (other, _) = free("other", &idle);
    let running = db.app().only([unpolled(one), unpolled(other)]).start().await.unwrap();
    // The first claim, and the one when listening begins.
    db.publish(&busy, 0).await;
    probe.start().await;
    eventually("both have begun", async || claims(&busy) >= 2 && claims(&idle) >= 1).await;
    let before = claims(&idle);
    for n in 1..=20 {
        db.publish(&busy, n).await;
        probe.start().await;
    }
    assert!(claims(&busy) >= 10);
    assert!(claims(&idle) <= before + 1, "{} claims of an idle queue", claims(&idle));
    running.stop().await.unwrap();
}

async fn a_claim_of_several_queues_reads_each_index_range_in_order(db: &Db) {
    db.exec(
        "INSERT INTO outbox (queue, payload) SELECT 'q' || n % 5, '' FROM generate_series(1, 20000) n",
    )
    .await;
    db.exec("ANALYZE outbox").await;
    let claim = include_str!("../../../outbox/src/store/postgres/sql/claim.sql");
    let mut tx = db.pg().begin().await.unwrap();
    let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) {claim}");
    let plan: Value = sqlx::query_scalar(AssertSqlSafe(explain))
        .bind([10_i64])
        .bind([60_000_000_i64])
        .bind([uuid::Uuid::new_v4()])
        .bind([None::<String>])
        .bind([None::<i64>])
        .bind(["q0", "q1", "q2"].map(String::from))
        .bind([1_i64; 3])
        .bind("claims of q0")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let mut scans = Vec::new();
    table_scans(&plan[0]["Plan"], &mut scans);
    assert!(scans.len() >= 2, "{plan:#}");
    for (node, index, rows) in scans {
        // By their place only those are read that were locked, each once.
        let most = if node == "Tid Scan" { 10.0 } else { 30.0 };
        let in_order = ["Index Scan", "Index Only Scan"].contains(&&*node);
        assert!(
            (in_order && index == "outbox_due_idx" || node == "Tid Scan") && rows <= most,
            "{node} of {index} read {rows} rows: {plan:#}"
        );
    }
}

/// Type, index and rows of every node that reads the table.
fn table_scans(node: &Value, found: &mut Vec<(String, String, f64)>) {
    let text = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
    if text("Relation Name") == "outbox" && text("Node Type") != "ModifyTable" {
        let rows = node["Actual Rows"].as_f64().unwrap() * node["Actual Loops"].as_f64().unwrap();
        let removed = node["Rows Removed by Filter"].as_f64().unwrap_or_default();
        found.push((text("Node Type"), text("Index Name"), rows + removed));
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        table_scans(child, found);
    }
}
