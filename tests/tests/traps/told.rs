//! What is told of a publish, and what a returned message takes over.

use outbox::testing::TestBroker;
use outbox::{Outgoing, Publisher, subscriber};
use outbox_tests::capture;
use outbox_tests::db::Db;

#[tokio::test]
async fn a_publish_that_is_refused_is_told_as_an_error() {
    capture::start();
    let Some(db) = Db::sqlite().await else { return };
    let outbox_tests::db::Pool::Sqlite(pool) = &db.pool else { unreachable!() };
    let queue = "told of refusals";
    let mut tx = outbox::sqlite::begin(pool).await.unwrap();
    let publisher = Publisher::default();
    let unreadable = std::collections::HashMap::from([((1, 2), 3)]);
    publisher.publish(&mut tx, queue, &unreadable).await.unwrap_err();
    publisher.publish(&mut tx, queue, &7).await.unwrap();
    let batch = [Outgoing::new(queue, &7), Outgoing::new("", &7)];
    publisher.publish_batch(&mut tx, batch).await.unwrap_err();
    sqlx::query("DROP TABLE outbox").execute(&mut *tx).await.unwrap();
    publisher.publish(&mut tx, queue, &7).await.unwrap_err();
    drop(tx);
    let told: Vec<_> = capture::events(queue)
        .iter()
        .map(|line| {
            let field = |name| line.get(name).unwrap_or_default().to_owned();
            (field("status"), field("count"), field("exception_type"))
        })
        .collect();
    let told: Vec<_> = told.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    assert_eq!(
        told,
        [
            ("error", "0", "Encode"),
            ("success", "1", ""),
            ("error", "0", "EmptyName"),
            ("error", "0", "Store"),
        ]
    );
    db.close().await;
}

#[subscriber("texts", publish = "numbers")]
async fn length(text: String) -> usize {
    text.len()
}

#[tokio::test]
async fn a_returned_message_has_the_content_type_of_what_it_is() {
    let broker = TestBroker::with([length::subscriber()]);
    let text = Outgoing::raw("texts", "seven").content_type("text/plain");
    broker.publish_with(text.correlation_id("the work")).await.unwrap();
    let rows = broker.rows();
    assert_eq!((&*rows[0].queue, &rows[0].payload[..]), ("numbers", &b"5"[..]));
    let headers = rows[0].headers().unwrap();
    assert_eq!(headers.content_type(), Some("application/json"));
    assert_eq!(headers.correlation_id(), Some("the work"));
}
