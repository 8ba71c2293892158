//! What a handler collects is published if it is the handler that acks; a layer's, whoever acks.

use outbox::{AckPolicy, Context, HandlerError, HandlerResult, Next, Outgoing};

use super::*;

/// Notes under whose hand it was collected.
fn note(ctx: &Context, by: &str) {
    ctx.publisher().collect(Outgoing::new("notes", by)).unwrap();
}

/// The notes that were published, in order.
fn notes(broker: &TestBroker) -> Vec<String> {
    let notes = broker.rows().into_iter().filter(|row| row.queue == "notes");
    let notes: Vec<_> = notes.map(|row| String::from_utf8(row.payload.to_vec()).unwrap()).collect();
    notes.iter().map(|note| note.trim_matches('"').to_owned()).collect()
}

async fn forgiving(ctx: Context, next: Next) -> HandlerResult {
    note(&ctx, "before");
    let result = next.run(ctx.clone()).await;
    note(&ctx, "after");
    result.or(Ok(Outcome::Ack))
}

async fn impatient(ctx: Context, next: Next) -> HandlerResult {
    note(&ctx, "before");
    let result = tokio::time::timeout(SECOND, next.run(ctx.clone())).await;
    note(&ctx, "after");
    result.unwrap_or(Ok(Outcome::Ack))
}

async fn work(ctx: &Context, fails: bool) -> Result<(), HandlerError> {
    note(ctx, "handler");
    if fails { Err(HandlerError::new("stock", "no stock")) } else { Ok(()) }
}

fn alone(fails: bool) -> Subscriber {
    Subscriber::new("it", "q", move |ctx: Context| async move { work(&ctx, fails).await })
}

fn batch(fails: bool) -> Subscriber {
    Subscriber::batches("it", "q", 5, move |batch: Vec<Context>| async move {
        work(&batch[0], fails).await
    })
}

#[tokio::test]
async fn what_a_handler_collected_before_an_error_that_a_layer_acks_is_not_published() {
    for subscriber in [alone, batch] {
        for (fails, published) in
            [(true, vec!["before", "after"]), (false, vec!["before", "handler", "after"])]
        {
            let broker = TestBroker::with([subscriber(fails)]).layer(forgiving);
            broker.publish("q", &7).await.unwrap();
            assert_eq!(notes(&broker), published);
            assert!(broker.dlq_rows().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_collects_for_a_layer_that_has_given_it_up_is_not_published() {
    let slow = |ctx: Context| async move {
        note(&ctx, "early");
        tokio::time::sleep(5 * SECOND).await;
        note(&ctx, "late");
    };
    let alone = Subscriber::new("it", "q", slow);
    let batch =
        Subscriber::batches("it", "q", 5, move |batch: Vec<Context>| slow(batch[0].clone()));
    for subscriber in [alone, batch] {
        let broker = TestBroker::with([subscriber]).layer(impatient);
        broker.publish("q", &7).await.unwrap();
        assert_eq!(notes(&broker), ["before", "after"]);
    }
}

/// The handler of a batch goes on for the others while one is given up.
#[tokio::test(start_paused = true)]
async fn a_message_of_a_batch_whose_layer_went_ahead_takes_nothing_of_its_handler_with_it() {
    async fn only_the_first(ctx: Context, next: Next) -> HandlerResult {
        if ctx.payload() == b"1" { impatient(ctx, next).await } else { next.run(ctx).await }
    }
    let slow = Subscriber::batches("it", "q", 2, |batch: Vec<Context>| async move {
        tokio::time::sleep(5 * SECOND).await;
        for one in &batch {
            note(one, &format!("handler of {}", one.decode::<u8>().unwrap()));
        }
    });
    let broker = TestBroker::with([slow.batch_wait(SECOND)]).layer(only_the_first);
    broker.publish_batch([1, 2].map(|n| Outgoing::new("q", &n))).await.unwrap();
    assert_eq!(notes(&broker), ["before", "after", "handler of 2"]);
}

/// Also under `Manual`, where the first word counts.
#[tokio::test]
async fn what_a_handler_collected_does_not_go_with_the_word_of_a_layer() {
    async fn hasty(ctx: Context, next: Next) -> HandlerResult {
        ctx.ack();
        next.run(ctx).await
    }
    let broker = TestBroker::with([alone(true).ack(AckPolicy::Manual)]).layer(hasty);
    broker.publish("q", &7).await.unwrap();
    assert!(broker.rows().is_empty() && broker.dlq_rows().is_empty());
}

/// Under `Manual` its word counts, also over a later error.
#[tokio::test]
async fn what_a_handler_collected_goes_with_its_own_word() {
    let manual = Subscriber::new("it", "q", |ctx: Context| async move {
        note(&ctx, "handler");
        ctx.ack();
        Err::<(), _>(HandlerError::new("stock", "no stock"))
    });
    let broker = TestBroker::with([manual.ack(AckPolicy::Manual)]).layer(forgiving);
    broker.publish("q", &7).await.unwrap();
    assert_eq!(notes(&broker), ["before", "handler", "after"]);
}
