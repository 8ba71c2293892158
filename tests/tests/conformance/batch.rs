//! Many messages with one statement.

use std::time::Duration;

use outbox::{Outgoing, Published};

use crate::bench::{Bench, Steps, about};

const HOUR: Duration = Duration::from_secs(3600);

async fn a_batch_answers_with_ids_in_its_order<B: Bench>(b: B) {
    let published = b.send_batch((0..50).map(|n| Outgoing::new("q", &n)).collect()).await;
    let ids: Vec<_> = published.iter().map(|one| one.id().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(b.row(*id).await.payload, n.to_string().as_bytes());
    }
    assert!(published.iter().all(|one| matches!(one, Published::Inserted(_))));
}

async fn a_batch_is_claimed_in_its_order<B: Bench>(b: B) {
    let published = b.send_batch((0..50).map(|n| Outgoing::new("q", &n)).collect()).await;
    let ids: Vec<_> = published.iter().map(|one| one.id().unwrap()).collect();
    assert_eq!(b.claim_ids(&["q"], 100).await, ids);
}

async fn a_batch_may_name_many_queues<B: Bench>(b: B) {
    let batch = ["x", "y", "x", "é"].map(|queue| Outgoing::new(queue, &1)).into();
    let published = b.send_batch(batch).await;
    let queues: Vec<_> = b.rows().await.into_iter().map(|row| row.queue).collect();
    assert_eq!(queues, ["x", "y", "x", "é"]);
    assert_eq!(b.claim_ids(&["y"], 10).await, [published[1].id().unwrap()]);
}

async fn each_message_of_a_batch_has_its_own_options<B: Bench>(b: B) {
    let at = std::time::UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    let batch = vec![
        Outgoing::new("q", &1).delay(HOUR),
        Outgoing::new("q", &2).timer_id("t"),
        Outgoing::new("q", &3).at(at),
        Outgoing::new("q", &4),
    ];
    b.send_batch(batch).await;
    let rows = b.rows().await;
    let now = b.now().await;
    about(rows[0].due - now, HOUR);
    about(rows[1].due - now, Duration::ZERO);
    assert_eq!(rows[2].due, 4_102_444_800_000_000);
    about(rows[3].due - now, Duration::ZERO);
    let timers: Vec<_> = rows.iter().map(|row| row.timer_id.as_deref()).collect();
    assert_eq!(timers, [None, Some("t"), None, None]);
}

async fn a_batch_of_one_due_time_keeps_it<B: Bench>(b: B) {
    let at = std::time::UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    let later = |n: u8| Outgoing::new("later", &n).delay(HOUR);
    b.send_batch([1, 2].map(later).into()).await;
    b.send_batch([3, 4].map(|n: u8| Outgoing::new("fixed", &n).at(at)).into()).await;
    let rows = b.rows().await;
    let now = b.now().await;
    let payloads: Vec<_> = rows.iter().map(|row| &*row.payload).collect();
    assert_eq!(payloads, [b"1", b"2", b"3", b"4"]);
    for row in &rows[..2] {
        assert_eq!(row.queue, "later");
        about(row.due - now, HOUR);
    }
    for row in &rows[2..] {
        assert_eq!((&*row.queue, row.due), ("fixed", 4_102_444_800_000_000));
    }
}

async fn an_empty_batch_writes_nothing<B: Bench>(b: B) {
    assert!(b.send_batch(Vec::new()).await.is_empty());
    b.assert_empty().await;
}

async fn a_rolled_back_batch_is_never_claimed<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    let batch: Vec<_> = (0..5).map(|n| Outgoing::new("q", &n)).collect();
    b.publisher().publish_batch(&mut tx, batch).await.unwrap();
    b.rollback(tx).await;
    b.assert_empty().await;
}

async fn a_batch_commits_with_its_transaction<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    let single = b.publisher().publish(&mut tx, "q", &0).await.unwrap();
    let mark = b.savepoint(&mut tx).await;
    let lost = vec![Outgoing::new("q", &1), Outgoing::new("q", &2)];
    b.publisher().publish_batch(&mut tx, lost).await.unwrap();
    b.rollback_to(&mut tx, &mark).await;
    let kept = b.publisher().publish_batch(&mut tx, vec![Outgoing::new("q", &3)]).await.unwrap();
    b.commit(tx).await;
    let ids = [single.id().unwrap(), kept[0].id().unwrap()];
    assert_eq!(b.claim_ids(&["q"], 10).await, ids);
}

async fn a_thousand_messages_are_one_batch<B: Bench>(b: B) {
    b.send_batch((0..1000).map(|n| Outgoing::new("q", &n)).collect()).await;
    assert_eq!(b.claim(&["q"], 2000).await.len(), 1000);
}

async fn a_new_row_of_a_batch_has_spent_nothing<B: Bench>(b: B) {
    b.send_batch(vec![Outgoing::new("q", &1), Outgoing::new("q", &1).timer_id("t")]).await;
    let rows = b.rows().await;
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!((row.attempts, row.deliveries), (0, 0));
        assert_eq!((row.first, row.last, row.acquired, row.token), (None, None, None, None));
        about(b.now().await - row.created, Duration::ZERO);
    }
}

cases! {
    a_batch_answers_with_ids_in_its_order,
    a_batch_is_claimed_in_its_order,
    a_batch_may_name_many_queues,
    each_message_of_a_batch_has_its_own_options,
    a_batch_of_one_due_time_keeps_it,
    an_empty_batch_writes_nothing,
    a_rolled_back_batch_is_never_claimed,
    a_batch_commits_with_its_transaction,
    a_thousand_messages_are_one_batch,
    a_new_row_of_a_batch_has_spent_nothing,
}
