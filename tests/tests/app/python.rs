//! Rows that the Python client writes are handled, and it reads ours.

use outbox::{Bytes, Context, Headers, Outgoing, State, Subscriber, subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::soon;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

on_postgres!(
    rows_of_its_client_are_handled,
    rows_without_headers_are_handled,
    a_row_that_its_worker_had_is_taken_over_with_its_counts,
    its_client_reads_what_we_write,
    its_operators_read_our_dead_letters,
    what_the_page_publishes_by_sql_is_handled_at_once,
);

type Seen = UnboundedSender<Value>;

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: i64,
    items: Vec<String>,
}

#[subscriber("py.json")]
async fn typed(order: Order, headers: Headers, ctx: Context, State(seen): State<Seen>) {
    let correlation = (headers.correlation_id(), ctx.correlation_id());
    let _ = seen.send(json!([order.id, order.items, headers.content_type(), correlation]));
}

#[subscriber("py.text")]
async fn text(body: String, State(seen): State<Seen>) {
    let _ = seen.send(json!(body));
}

#[subscriber("py.bytes")]
async fn bytes(body: Bytes, headers: Headers, State(seen): State<Seen>) {
    let _ = seen.send(json!([body.to_vec(), headers.content_type(), headers.get("tenant")]));
}

#[subscriber("py.none")]
async fn none(body: Option<u64>, State(seen): State<Seen>) {
    let _ = seen.send(json!([body]));
}

fn all() -> [Subscriber; 4] {
    [typed::subscriber(), text::subscriber(), bytes::subscriber(), none::subscriber()]
}

async fn start(db: &Db) -> (outbox::RunningApp, UnboundedReceiver<Value>) {
    let (seen, seeing) = unbounded_channel();
    (db.app().only(all()).state(seen).start().await.unwrap(), seeing)
}

async fn next(seeing: &mut UnboundedReceiver<Value>) -> Value {
    soon("a handler runs", seeing.recv()).await.unwrap()
}

/// As SQLAlchemy sends it: four columns, the notification in the same statement.
async fn python_publishes(db: &Db, queue: &str, payload: &[u8], headers: Option<Value>) {
    let insert = "INSERT INTO outbox (queue, payload, headers) VALUES ($1, $2, $3) \
        RETURNING outbox.id, pg_notify('outbox_outbox', $1)";
    let statement = sqlx::query(insert).bind(queue).bind(payload).bind(headers);
    statement.execute(db.pg()).await.unwrap();
}

async fn rows_of_its_client_are_handled(db: &Db) {
    let (running, mut seeing) = start(db).await;
    let id = json!("0a8c1f4e-7a43-4f54-8a8e-6f0a9a4f2f11");
    let headers = json!({"content-type": "application/json", "correlation_id": id});
    python_publishes(db, "py.json", br#"{"id": 7, "items": ["a", "\u00e9"]}"#, Some(headers)).await;
    let expected = json!([7, ["a", "é"], "application/json", [id, id]]);
    assert_eq!(next(&mut seeing).await, expected);

    let headers = json!({"content-type": "text/plain", "correlation_id": id});
    python_publishes(db, "py.text", "plain \"é\" 7".as_bytes(), Some(headers)).await;
    assert_eq!(next(&mut seeing).await, json!("plain \"é\" 7"));

    let headers = json!({"correlation_id": id, "tenant": "acme", "number": 7, "deep": {"a": [1]}});
    python_publishes(db, "py.bytes", b"\x00\xff", Some(headers)).await;
    assert_eq!(next(&mut seeing).await, json!([[0, 255], null, "acme"]));

    // That is how it writes `None`.
    python_publishes(db, "py.none", b"", Some(json!({"correlation_id": id}))).await;
    assert_eq!(next(&mut seeing).await, json!([null]));

    python_publishes(db, "py.bytes", b"", Some(json!({"correlation_id": id}))).await;
    assert_eq!(next(&mut seeing).await, json!([[], null, null]));
    db.drained().await;
    assert_eq!(db.letters().await, 0);
    running.stop().await.unwrap();
}

/// SQL NULL, and the JSON null that SQLAlchemy makes of `None`.
async fn rows_without_headers_are_handled(db: &Db) {
    let (running, mut seeing) = start(db).await;
    for (headers, id) in [(None, "1"), (Some(Value::Null), "3")] {
        python_publishes(db, "py.json", br#"{"id": 8, "items": []}"#, headers.clone()).await;
        let expected = json!([8, [], null, [null, id]]);
        assert_eq!(next(&mut seeing).await, expected, "the row's id ties it");
        python_publishes(db, "py.bytes", b"\xff", headers).await;
        assert_eq!(next(&mut seeing).await, json!([[255], null, null]));
    }
    db.drained().await;
    assert_eq!(db.letters().await, 0);
    running.stop().await.unwrap();
}

async fn a_row_that_its_worker_had_is_taken_over_with_its_counts(db: &Db) {
    db.exec(
        "INSERT INTO outbox (queue, payload, headers, attempts_count, deliveries_count, \
            first_attempt_at, last_attempt_at, acquired_at, acquired_token) \
         VALUES ('q', '7', NULL, 2, 5, now() - interval '2 h', now() - interval '1 h', \
            now() - interval '1 h', gen_random_uuid())",
    )
    .await;
    let (subscriber, probe) = outbox_tests::probe::free("it", "q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    let run = probe.start().await;
    assert_eq!((run.n, run.deliveries, run.attempts), (7, 6, 2));
    db.drained().await;
    running.stop().await.unwrap();
}

/// Its decoder: `text/plain` is text, JSON by its content type, and without one
/// JSON if it parses, else bytes.
async fn its_client_reads_what_we_write(db: &Db) {
    let order = Order { id: 7, items: vec!["é".into()] };
    db.send(Outgoing::new("typed", &order).header("tenant", "acme").correlation_id("c-1")).await;
    db.send(Outgoing::raw("bytes", &b"\xff"[..])).await;
    db.send(Outgoing::raw("text", &b"hello"[..]).content_type("text/plain")).await;
    let rows: Vec<(String, Vec<u8>, Value)> =
        sqlx::query_as("SELECT queue, payload, headers FROM outbox ORDER BY id")
            .fetch_all(db.pg())
            .await
            .unwrap();
    let made_up =
        |headers: &Value| headers["correlation_id"].as_str().is_some_and(|id| id.len() == 36);
    let (_, payload, mut headers) = rows[0].clone();
    // Ours alone, and a text as every header that its clients read.
    let tracked = headers.as_object_mut().unwrap().remove("outbox-tracking-ids");
    assert!(tracked.is_some_and(|ids| ids.as_str().is_some_and(|id| id.len() == 36)));
    assert_eq!(payload, r#"{"id":7,"items":["é"]}"#.as_bytes());
    let expected =
        json!({"content-type": "application/json", "correlation_id": "c-1", "tenant": "acme"});
    assert_eq!(headers, expected);
    let (_, payload, headers) = &rows[1];
    assert_eq!((&payload[..], headers.get("content-type")), (&b"\xff"[..], None));
    assert!(made_up(headers), "{headers}");
    let (_, payload, headers) = &rows[2];
    assert_eq!((&payload[..], &headers["content-type"]), (&b"hello"[..], &json!("text/plain")));
    assert!(made_up(headers), "{headers}");
    let fresh = "SELECT count(*) FROM outbox WHERE jsonb_typeof(headers) = 'object' \
        AND attempts_count = 0 AND deliveries_count = 0 AND acquired_at IS NULL \
        AND acquired_token IS NULL AND first_attempt_at IS NULL AND timer_id IS NULL \
        AND next_attempt_at <= clock_timestamp()";
    assert_eq!(db.int(fresh).await, 3, "its claim takes them");
}

/// By the columns that its own table has.
async fn its_operators_read_our_dead_letters(db: &Db) {
    let headers = json!({"content-type": "application/json", "correlation_id": "c-1"});
    let rejects =
        Subscriber::new("rejects", "q", |_: Context| async { outbox::Outcome::reject("no") });
    let running = db.app().only([rejects]).start().await.unwrap();
    python_publishes(db, "q", b"7", Some(headers.clone())).await;
    db.drained().await;
    let letter: Value = sqlx::query_scalar(
        "SELECT to_jsonb(letter) FROM (
            SELECT original_id, queue, payload, headers, deliveries_count, failure_reason,
                last_exception, timer_id
            FROM outbox_dlq WHERE failed_at >= created_at) AS letter",
    )
    .fetch_one(db.pg())
    .await
    .unwrap();
    let expected = json!({
        "original_id": 1, "queue": "q", "payload": "\\x37", "headers": headers,
        "deliveries_count": 1, "failure_reason": "rejected", "last_exception": null,
        "timer_id": null,
    });
    assert_eq!(letter, expected);
    running.stop().await.unwrap();
}

/// As in `docs/operations.md`, with polls so far apart that it has to be the wake: of the first
/// three it may hear by the looks of its start.
async fn what_the_page_publishes_by_sql_is_handled_at_once(db: &Db) {
    let page = include_str!("../../../docs/operations.md");
    let is_it = |block: &&str| block.starts_with("INSERT INTO outbox ");
    let sql = page.split("```sql\n").find(is_it).unwrap().split("```").next().unwrap();
    let (seen, mut seeing) = unbounded_channel();
    let orders = Subscriber::new("orders", "orders", move |ctx: Context| {
        let tenant = ctx.headers().get("tenant").map(str::to_owned);
        let _ = seen.send(json!([str::from_utf8(ctx.payload()).unwrap(), tenant]));
        async {}
    });
    let hour = std::time::Duration::from_secs(3600);
    let orders = orders.min_poll(hour).max_poll(hour);
    let running = db.app().only([orders]).start().await.unwrap();
    for _ in 0..5 {
        db.exec(format!("BEGIN; {sql} COMMIT")).await;
        let order = r#"{"id": 10, "amount": 4}"#;
        assert_eq!(next(&mut seeing).await, json!([order, "acme"]));
        db.drained().await;
    }
    running.stop().await.unwrap();
}
