//! Everything that operators do, in the role of operators.

use outbox::dlq::{Filter, Replay};
use outbox::ops::{Operator, PeekOptions, SampleOptions, WhyOptions};
use outbox::{Outgoing, Published};
use outbox_tests::db::Db;

use crate::Granted;

async fn letters(db: &Db, count: u32) {
    db.exec(format!(
        "INSERT INTO outbox_dlq (original_id, queue, payload, headers, deliveries_count, \
            created_at, failure_reason, last_exception) \
         SELECT 1000 + n, 'work', '1', '{{}}', 1, now(), 'rejected', 'on purpose ' || n \
         FROM generate_series(1, {count}) AS n"
    ))
    .await;
}

async fn an_operator_looks_at_everything(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.operator();
    let operator = Operator::postgres(pool.clone(), db.names.clone());
    letters(db, 3).await;
    let id = db.publish("work", 1).await;
    operator.sample(&SampleOptions::default().exact()).await.unwrap();
    assert_eq!(operator.queues(10).await.unwrap().len(), 1);
    assert_eq!(operator.peek("work", &PeekOptions::default()).await.unwrap().len(), 1);
    assert!(operator.why(id, &WhyOptions::default()).await.unwrap().is_known());
    assert!(operator.why(1001, &WhyOptions::default()).await.unwrap().is_known());
    let dead = operator.dead_letters();
    let all = Filter::new();
    assert_eq!(dead.list(&all, None, 10).await.unwrap().letters.len(), 3);
    assert!(dead.show(1).await.unwrap().is_some());
    assert_eq!(dead.groups(&all, 10).await.unwrap().problems.len(), 1);
    assert_eq!(dead.count(&all).await.unwrap(), 3);
    Operator::postgres(db.pg().clone(), db.names.clone())
        .dead_letters()
        .partition(0)
        .await
        .unwrap();
    let months = dead.partitions().await.unwrap();
    assert_eq!(months.iter().map(|month| month.letters).sum::<u64>(), 3);
    granted.end(&[&pool]).await;
}

async fn an_operator_changes_what_is_its_to_change(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.operator();
    let operator = Operator::postgres(pool.clone(), db.names.clone());
    letters(db, 4).await;
    operator.pause(&["work"], Some("a reason")).await.unwrap();
    operator.pause(&["work"], None).await.unwrap();
    assert_eq!(operator.paused().await.unwrap().len(), 1);
    operator.resume(&["work"]).await.unwrap();
    let timer = || Outgoing::new("work", &1).timer_id("t");
    assert!(matches!(operator.publish(timer()).await.unwrap(), Published::Inserted(_)));
    operator.cancel_timer("work", "t").await.unwrap();
    assert_eq!(db.rows().await, 0);
    let dead = operator.dead_letters();
    let report = dead.replay(&Filter::new().ids([1]), &Replay::new()).await.unwrap();
    assert_eq!(db.rows().await, 1, "{report:?}");
    assert_eq!(dead.resolve(&Filter::new().ids([2]), Some("done")).await.unwrap(), 1);
    assert_eq!(dead.ignore(&Filter::new().ids([3]), None).await.unwrap(), 1);
    assert_eq!(dead.purge(&Filter::new().ids([2, 3])).await.unwrap(), 2);
    granted.end(&[&pool]).await;
}

async fn an_operator_is_sent_to_the_owner_for_what_is_the_owner_s(db: &Db) {
    let granted = Granted::new(db, &db.names, false).await;
    let pool = granted.operator();
    let dead = Operator::postgres(pool.clone(), db.names.clone()).dead_letters();
    letters(db, 1).await;
    db.exec("UPDATE outbox_dlq SET failed_at = now() - interval '100 days'").await;
    let cut = dead.partition(0).await.unwrap_err();
    let owner = Operator::postgres(db.pg().clone(), db.names.clone()).dead_letters();
    owner.partition(0).await.unwrap();
    let now = dead.now().await.unwrap();
    let drop = dead.drop_partitions(now, true).await.unwrap_err();
    let migrate = outbox::schema::migrate_tables(&pool, &db.names).await.unwrap_err();
    for refused in [cut, drop, migrate] {
        let told = refused.to_string();
        assert!(told.contains("only the owner of the tables can do this"), "{told}");
        assert!(!told.contains("print-grants"), "{told}");
    }
    granted.end(&[&pool]).await;
}

outbox_tests::on_postgres!(
    an_operator_looks_at_everything,
    an_operator_is_sent_to_the_owner_for_what_is_the_owner_s,
    an_operator_changes_what_is_its_to_change,
);
