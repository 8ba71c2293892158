//! Payloads that nobody should have sent, on real databases: each ends in exactly
//! one dead letter or one handled row, and the loop goes on.

use std::collections::BTreeMap;
use std::sync::Mutex;

use outbox::{Context, Outgoing, subscriber};
use outbox_tests::db::Db;
use outbox_tests::hostile::payloads;
use outbox_tests::on_both;
use outbox_tests::wait::eventually;

on_both!(each_ends_in_one_dead_letter_or_one_handled_row);

static HANDLED: Mutex<Vec<(String, i64)>> = Mutex::new(Vec::new());

fn note(ctx: &Context) {
    HANDLED.lock().unwrap().push((ctx.queue().to_owned(), ctx.id()));
}

#[subscriber(["map postgres", "map sqlite"], retry = NoRetry)]
async fn map(_: BTreeMap<String, f64>, ctx: Context) {
    note(&ctx);
}

#[subscriber(["any postgres", "any sqlite"], retry = NoRetry)]
async fn any(_: serde_json::Value, ctx: Context) {
    note(&ctx);
}

async fn each_ends_in_one_dead_letter_or_one_handled_row(db: &Db) {
    let database = if db.is_postgres() { "postgres" } else { "sqlite" };
    let queues = [format!("map {database}"), format!("any {database}")];
    let running = db.app().only([map::subscriber(), any::subscriber()]).start().await.unwrap();
    let (mut handled, mut letters) = (Vec::new(), Vec::new());
    // The last one is refused: see the test of the test broker.
    let all = payloads();
    for hostile in &all[..all.len() - 1] {
        for (queue, reads) in queues.iter().zip([hostile.map, hostile.any]) {
            let id = db.send(hostile.message(queue)).await.id().unwrap();
            if reads { handled.push((queue.clone(), id)) } else { letters.push(id) }
        }
    }
    db.drained().await;
    for queue in &queues {
        let good = Outgoing::new(queue.as_str(), &BTreeMap::from([("a", 1.0)]));
        let id = db.send(good).await.id().unwrap();
        handled.push((queue.clone(), id));
    }
    eventually("the loop goes on", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    let mut found: Vec<_> = HANDLED.lock().unwrap().clone();
    found.retain(|(queue, _)| queues.contains(queue));
    found.sort();
    handled.sort();
    assert_eq!(found, handled);
    for id in &letters {
        let sql = format!(
            "SELECT count(*) FROM outbox_dlq WHERE original_id = {id} AND error_kind = 'decode'"
        );
        assert_eq!(db.int(sql).await, 1, "row {id}");
    }
    assert_eq!(db.letters().await, i64::try_from(letters.len()).unwrap());
}
