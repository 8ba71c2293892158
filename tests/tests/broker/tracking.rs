//! The chain of publishes, the correlation id and the trace that go with
//! messages, and the time after which they are not started.

use outbox::retry::Constant;
use outbox::{Context, FailureReason, Outgoing, tracking, tracking_ids};

use super::*;

/// Publishes to `next` in the ways there are: collected, and by the broker.
fn relay(broker: &TestBroker) -> Subscriber {
    let broker = broker.clone();
    Subscriber::new("relay", "first", move |ctx: Context| {
        let broker = broker.clone();
        async move {
            assert_eq!(tracking_ids(), ctx.tracking_ids());
            ctx.publisher().collect(Outgoing::new("next", "collected")).unwrap();
            broker.publish("next", "published").await.unwrap();
            ctx.publisher().collect(Outgoing::new("next", "own").correlation_id("own")).unwrap();
        }
    })
}

fn header(row: &outbox::Row, name: &str) -> Option<String> {
    row.headers().unwrap().get(name).map(str::to_owned)
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[tokio::test]
async fn messages_of_a_handler_inherit_its_chain_its_correlation_and_its_trace() {
    let outer = TestBroker::with([it(|| ())]);
    let broker = TestBroker::with([relay(&outer)]);
    let first = Outgoing::new("first", &7)
        .correlation_id("the work")
        .header("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01"));
    let id = tracking(async {
        broker.publish_with(first).await.unwrap();
        tracking_ids()[0]
    })
    .await;
    let call = &broker.calls("relay")[0];
    let chain = call.headers.get("outbox-tracking-ids").unwrap().to_owned();
    assert!(chain.starts_with(&id.to_string()) && chain.len() == 2 * 36 + 1, "{chain}");
    let rows = [broker.rows(), outer.rows()].concat();
    assert_eq!(rows.len(), 3);
    for row in &rows {
        let ids = header(row, "outbox-tracking-ids").unwrap();
        assert!(ids.starts_with(&format!("{chain},")) && ids.len() == 3 * 36 + 2, "{ids}");
        let own = &*row.payload == b"\"own\"";
        let work = if own { "own" } else { "the work" };
        assert_eq!(header(row, "correlation_id").as_deref(), Some(work));
        let parent = header(row, "traceparent").unwrap();
        assert!(parent.starts_with(&format!("00-{TRACE}-")), "{parent}");
        assert!(!parent.contains("b7ad6b7169203331"), "it is the child of the handler");
    }
    assert!(tracking_ids().is_empty());
}

/// The headers of another message say where that one comes from.
#[tokio::test]
async fn an_answer_with_the_headers_of_its_message_has_a_chain_and_a_span_of_its_own() {
    let echo = Subscriber::new("echo", "first", |ctx: Context| async move {
        ctx.publisher().collect(Outgoing::new("next", &7).headers(ctx.headers()))
    });
    let broker = TestBroker::with([echo]);
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let first = Outgoing::new("first", &7).header("traceparent", parent.as_str());
    broker.publish_with(first).await.unwrap();
    let first = broker.calls("echo")[0].headers.get("outbox-tracking-ids").unwrap().to_owned();
    let answer = &broker.rows()[0];
    let chain = header(answer, "outbox-tracking-ids").unwrap();
    assert!(chain.starts_with(&format!("{first},")), "{chain}");
    let span = header(answer, "traceparent").unwrap();
    assert!(span.contains(TRACE) && span != parent, "{span}");
}

/// Which of its messages an answer is for, a run of several does not know.
#[tokio::test]
async fn answers_with_the_headers_of_messages_of_one_run_have_ids_of_their_own() {
    let outer = TestBroker::with([it(|| ())]);
    let echo = {
        let outer = outer.clone();
        Subscriber::batches("echo", "first", 2, move |batch: Vec<Context>| {
            let outer = outer.clone();
            async move {
                for ctx in &batch {
                    for n in 0..2 {
                        let answer = Outgoing::new("next", &n).headers(ctx.headers());
                        outer.publish_with(answer).await.unwrap();
                    }
                }
            }
        })
    };
    let broker = TestBroker::with([echo]);
    let first = || Outgoing::new("first", &7).correlation_id("the work");
    broker.publish_batch([first(), first()]).await.unwrap();
    let mut ids: Vec<_> =
        outer.rows().iter().map(|row| header(row, "outbox-tracking-ids").unwrap()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "{ids:?}");
    let of_messages = broker.calls("echo").into_iter().map(|call| call.headers);
    let of_messages: Vec<_> = of_messages.collect();
    assert!(
        of_messages.iter().all(|it| !ids.contains(&it.get("outbox-tracking-ids").unwrap().into()))
    );
    let works: Vec<_> = outer.rows().iter().map(|row| header(row, "correlation_id")).collect();
    assert_eq!(works, vec![Some("the work".to_owned()); 4]);
}

/// Its time is not that of the message it answers.
#[tokio::test]
async fn an_answer_with_the_headers_of_its_message_has_a_time_of_its_own_if_any() {
    let echo = Subscriber::new("echo", "first", |ctx: Context| async move {
        let answer = || Outgoing::new("next", &7).headers(ctx.headers());
        ctx.publisher().collect(answer())?;
        ctx.publisher().collect(answer().expires_in(60 * SECOND))
    });
    let broker = TestBroker::with([echo]);
    broker.publish_with(Outgoing::new("first", &7).expires_in(5 * SECOND)).await.unwrap();
    let rows = broker.rows();
    let times: Vec<_> = rows.iter().map(|row| header(row, "outbox-expires-in")).collect();
    assert_eq!(times, [None, Some("60000".to_owned())]);
}

/// They would count as replays of the answer.
#[tokio::test]
async fn an_answer_with_the_headers_of_its_message_was_not_replayed() {
    let echo = Subscriber::new("echo", "first", |ctx: Context| async move {
        ctx.publisher().collect(Outgoing::new("next", &7).headers(ctx.headers()))
    });
    let broker = TestBroker::with([echo]);
    let replayed = ["outbox-original-id", "outbox-replays", "outbox-letter"];
    let first = Outgoing::new("first", &7).header("tenant", "a");
    let first = replayed.iter().fold(first, |first, name| first.header(*name, "3"));
    broker.publish_with(first).await.unwrap();
    let answer = &broker.rows()[0];
    assert_eq!(header(answer, "tenant").as_deref(), Some("a"));
    assert!(replayed.iter().all(|name| header(answer, name).is_none()));
}

#[tokio::test]
async fn a_handler_acked_first_has_its_chain_too() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let inner = std::sync::Arc::clone(&seen);
    let subscriber = Subscriber::new("it", "q", move |ctx: Context| {
        inner.lock().unwrap().push((tracking_ids(), ctx.tracking_ids()));
        async {}
    });
    let broker = TestBroker::with([subscriber.ack(outbox::AckPolicy::AckFirst)]);
    broker.publish("q", &7).await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen[0].0.len()), (1, 1));
    assert_eq!(seen[0].0, seen[0].1);
}

#[tokio::test]
async fn every_publish_has_an_id_of_its_own() {
    let broker = TestBroker::with([it(|| ())]);
    let batch = (0..3).map(|n| Outgoing::new("elsewhere", &n));
    broker.publish_batch(batch).await.unwrap();
    broker.publish("elsewhere", &3).await.unwrap();
    let mut ids: Vec<_> =
        broker.rows().iter().map(|row| header(row, "outbox-tracking-ids").unwrap()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    let given = Outgoing::new("elsewhere", &4).header("outbox-tracking-ids", "mine");
    broker.publish_with(given).await.unwrap();
    let last = broker.rows().pop().unwrap();
    assert_eq!(header(&last, "outbox-tracking-ids").as_deref(), Some("mine"));
}

#[tokio::test]
async fn a_message_that_is_not_started_in_time_is_terminal() {
    let broker = TestBroker::with([it(|| ())]);
    let late = Outgoing::new("q", &1).delay(60 * SECOND).header("outbox-expires-in", "59000");
    let in_time = Outgoing::new("q", &2).delay(60 * SECOND).expires_in(61 * SECOND);
    broker.publish_batch([late, in_time]).await.unwrap();
    broker.run_until_idle().await;
    assert_eq!(runs(&broker), 1);
    let letter = only_letter(&broker);
    assert_eq!((&letter.payload[..], letter.failure_reason), (&b"1"[..], FailureReason::Expired));
    assert_eq!(letter.failure_reason.as_str(), "expired");
}

#[tokio::test]
async fn a_retry_that_comes_too_late_is_terminal() {
    let broker = TestBroker::with([it(failing).retry(Constant::new(10 * SECOND))]);
    broker.publish_with(Outgoing::new("q", &1).expires_in(25 * SECOND)).await.unwrap();
    broker.run_until_idle().await;
    assert_eq!(runs(&broker), 3);
    assert_eq!(only_letter(&broker).failure_reason, FailureReason::Expired);
}

#[tokio::test]
async fn without_dead_letters_what_expired_is_deleted() {
    let broker = TestBroker::with([it(|| ())]).without_dlq();
    let late = Outgoing::new("q", &1).delay(SECOND).header("outbox-expires-in", "500");
    broker.publish_with(late).await.unwrap();
    broker.run_until_idle().await;
    assert!(broker.rows().is_empty() && runs(&broker) == 0);
}

/// In a batch and in a task no message is the one being handled: what the publisher of one of
/// them publishes in a scope goes on from that one all the same.
#[tokio::test]
async fn a_scope_in_a_batch_or_a_task_goes_on_from_whose_publisher_it_uses() {
    let pool = outbox::sqlite::connect("sqlite::memory:").await.unwrap();
    outbox::migrate(&pool).await.unwrap();
    let scoped = {
        let pool = pool.clone();
        move |ctx: Context| {
            let pool = pool.clone();
            async move {
                let mut tx = outbox::sqlite::begin(&pool).await.unwrap();
                let publish = async {
                    let scope = tracking_ids()[0].to_string();
                    let next = Outgoing::new("next", &scope).headers(ctx.headers());
                    ctx.publisher().send(&mut tx, next).await.unwrap();
                };
                tracking(publish).await;
                tx.commit().await.unwrap();
            }
        }
    };
    let in_batch = {
        let scoped = scoped.clone();
        Subscriber::batches("batches", "batches", 2, move |batch: Vec<Context>| {
            scoped(batch[1].clone())
        })
    };
    let in_task = Subscriber::new("tasks", "tasks", move |ctx: Context| {
        let task = tokio::spawn(scoped(ctx));
        async { task.await.unwrap() }
    });
    let broker = TestBroker::with([in_batch, in_task]);
    let message = |queue: &str| {
        let trace = format!("00-{TRACE}-b7ad6b7169203331-01");
        Outgoing::new(queue, &7).correlation_id("the work").header("traceparent", trace)
    };
    broker.publish_batch([message("batches"), message("batches")]).await.unwrap();
    broker.publish_with(message("tasks")).await.unwrap();
    let rows = sqlx::query_as("SELECT payload, headers FROM outbox ORDER BY id");
    let rows: Vec<(Vec<u8>, String)> = rows.fetch_all(&pool).await.unwrap();
    assert_eq!(rows.len(), 2);
    for ((scope, headers), call) in rows.iter().zip(["batches", "tasks"]) {
        let of_message = &broker.calls(call)[usize::from(call == "batches")].headers;
        let scope: String = serde_json::from_slice(scope).unwrap();
        let headers: serde_json::Value = serde_json::from_str(headers).unwrap();
        let ids = headers["outbox-tracking-ids"].as_str().unwrap();
        let chain = format!("{},{scope},", of_message.get("outbox-tracking-ids").unwrap());
        assert!(ids.starts_with(&chain), "{call}: {ids} begins with {chain}");
        assert_eq!(headers["correlation_id"], "the work");
        assert!(headers["traceparent"].as_str().unwrap().contains(TRACE));
    }
}
