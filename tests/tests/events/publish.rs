//! What is told of publishing: rows written, or why none were.

use std::process::Command;

use outbox::{Outgoing, Publisher, Queue};
use outbox_tests::capture::Line;
use outbox_tests::db::{Db, Pool};
use outbox_tests::{capture, on_both};

use super::{fields, queue};

on_both!(
    a_publish_tells_how_many_rows_it_wrote,
    a_refused_publish_is_told_with_its_kind,
    a_failed_statement_is_told,
    a_fn_that_was_given_a_transaction_hands_it_on,
);

fn published(queue: &str) -> Vec<Line> {
    fields::check(queue);
    let mut events = capture::events(queue);
    events.retain(|line| line.event() == Some("published"));
    events
}

async fn a_publish_tells_how_many_rows_it_wrote(db: &Db) {
    let q = queue();
    db.send_all((0..3).map(|n| Outgoing::raw(&*q, vec![n; 10]))).await;
    db.send_all([Outgoing::new(&*q, &1).timer_id("t")]).await;
    db.send_all([Outgoing::new(&*q, &1).timer_id("t")]).await;
    let told: Vec<_> = published(&q)
        .iter()
        .map(|line| {
            ["status", "count", "size_bytes"].map(|field| line.get(field).unwrap().to_owned())
        })
        .collect();
    assert_eq!(told, [["success", "3", "30"], ["success", "1", "1"], ["success", "0", "1"]]);
}

/// Publishes in a transaction that rolls back, one by one and as a batch.
async fn fails(db: &Db, message: impl Fn() -> Outgoing) {
    let publisher = Publisher::new(db.names.clone()).max_payload(100);
    match &db.pool {
        Pool::Postgres(pool) => {
            publisher.send(&mut pool.begin().await.unwrap(), message()).await.unwrap_err();
            let mut tx = pool.begin().await.unwrap();
            publisher.publish_batch(&mut tx, [message()]).await.unwrap_err();
        }
        Pool::Sqlite(pool) => {
            publisher.send(&mut pool.begin().await.unwrap(), message()).await.unwrap_err();
            let mut tx = pool.begin().await.unwrap();
            publisher.publish_batch(&mut tx, [message()]).await.unwrap_err();
        }
    }
}

fn is_error(line: &Line, kind: &str) {
    assert_eq!((line.get("status"), line.get("count")), (Some("error"), Some("0")));
    assert_eq!(line.get("exception_type"), Some(kind));
}

async fn a_refused_publish_is_told_with_its_kind(db: &Db) {
    let q = queue();
    fails(db, || Outgoing::raw(&*q, vec![0; 101])).await;
    fails(db, || Outgoing::new(&*q, &std::path::Path::new("/")).timer_id("")).await;
    let told = published(&q);
    assert_eq!(told.len(), 4, "{told:?}");
    told[..2].iter().for_each(|line| is_error(line, "PayloadTooLarge"));
    told[2..].iter().for_each(|line| is_error(line, "EmptyName"));
}

async fn a_failed_statement_is_told(db: &Db) {
    let q = queue();
    db.exec("DROP TABLE outbox").await;
    fails(db, || Outgoing::new(&*q, &1)).await;
    let told = published(&q);
    assert_eq!(told.len(), 2, "{told:?}");
    told.iter().for_each(|line| is_error(line, "Store"));
}

static TYPED: Queue<u64> = Queue::new("told: typed");

/// In a process of its own: what the environment says is read once.
#[tokio::test]
async fn a_publish_is_told_of_that_finds_a_wrong_environment() {
    const NAME: &str = "publish::a_publish_is_told_of_that_finds_a_wrong_environment";
    const WRONG: (&str, &str) = ("OUTBOX_TABLE", "public.outbox");
    if std::env::var(WRONG.0).as_deref() != Ok(WRONG.1) {
        let mut own = Command::new(std::env::current_exe().unwrap());
        let ran = own.args(["--exact", NAME]).env(WRONG.0, WRONG.1).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let q = queue();
    let pool = sqlx::SqlitePool::connect("sqlite::memory:").await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    outbox::publish(&mut tx, &*q, &7).await.unwrap_err();
    Outgoing::new(&*q, &7).publish(&mut tx).await.unwrap_err();
    TYPED.publish(&mut tx, &7).await.unwrap_err();
    let told = [published(&q), published(TYPED.name())].concat();
    assert_eq!(told.len(), 3, "{told:?}");
    told.iter().for_each(|line| is_error(line, "Names"));
    assert!(told.iter().all(|line| line.get("size_bytes") == Some("1")), "{told:?}");
}

async fn hand_on<T: outbox::Transaction>(mut tx: &mut T, db: &Db, queue: &str) {
    let publisher = Publisher::new(db.names.clone());
    publisher.publish(&mut tx, queue, &1).await.unwrap();
    let both = [2, 3].map(|n| Outgoing::new(queue, &n).timer_id(n.to_string()));
    publisher.publish_batch(&mut tx, both).await.unwrap();
    assert!(publisher.cancel_timer(&mut tx, queue, "3").await.unwrap());
}

async fn a_fn_that_was_given_a_transaction_hands_it_on(db: &Db) {
    let q = queue();
    match &db.pool {
        Pool::Postgres(pool) => {
            let mut tx = pool.begin().await.unwrap();
            hand_on(&mut tx, db, &q).await;
            tx.commit().await.unwrap();
        }
        Pool::Sqlite(pool) => {
            let mut tx = outbox::sqlite::begin(pool).await.unwrap();
            hand_on(&mut tx, db, &q).await;
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(db.rows().await, 2);
}
