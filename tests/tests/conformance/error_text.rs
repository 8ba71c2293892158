//! Whatever an error says, its dead letter can be written: the text is made
//! storable on the way through the engine.

use std::fmt;
use std::sync::Arc;

use outbox::retry::NoRetry;
use outbox::testing::TestBroker;
use outbox::{App, Context, Subscriber};
use outbox_tests::wait::soon;
use tokio::sync::Notify;

use crate::bench::{Bench, Memory, Postgres, RawLetter, SqlBench, Sqlite, Steps};

const LIMIT: usize = 8 * 1024;

struct Failed(String);

/// As it is: a derived `Debug` would escape what this theme is about.
impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failed({})", self.0)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed")
    }
}

impl std::error::Error for Failed {}

/// A subscriber that fails with this text, and a sign that it ran.
fn failing(text: String) -> (Subscriber, Arc<Notify>) {
    let ran = Arc::new(Notify::new());
    let sign = Arc::clone(&ran);
    let handler = move |_: Context| {
        let (text, sign) = (text.clone(), Arc::clone(&sign));
        async move {
            sign.notify_one();
            Err::<(), _>(Failed(text))
        }
    };
    (Subscriber::new("failing", "q", handler).retry(NoRetry), ran)
}

/// What each store's engine makes of a failing handler.
trait Fails: Bench {
    async fn letter_of(&self, text: String) -> RawLetter;
}

impl Fails for Memory {
    async fn letter_of(&self, text: String) -> RawLetter {
        let broker = TestBroker::with([failing(text).0]);
        broker.publish("q", &1).await.unwrap();
        assert!(broker.rows().is_empty());
        let letter = broker.dlq_rows().remove(0);
        RawLetter {
            id: letter.id,
            original_id: letter.original_id,
            queue: letter.queue,
            payload: letter.payload.to_vec(),
            headers: None,
            deliveries: 1,
            created: 0,
            failed: 0,
            reason: letter.failure_reason.to_string(),
            exception: letter.last_exception,
            timer_id: letter.timer_id,
            kind: letter.error_kind,
            note: letter.note,
            fingerprint: letter.fingerprint,
        }
    }
}

/// Starts the app, waits until the handler ran, and drains: the result is written.
async fn run<B: SqlBench>(b: &B, app: App, text: String) -> RawLetter {
    let (subscriber, ran) = failing(text);
    b.put("q").await;
    let running = app.names(b.names().clone()).only([subscriber]).start().await.unwrap();
    soon("it runs", ran.notified()).await;
    running.stop().await.unwrap();
    b.assert_empty().await;
    b.letters().await.remove(0)
}

impl Fails for Sqlite {
    async fn letter_of(&self, text: String) -> RawLetter {
        run(self, App::sqlite(self.pool().clone()), text).await
    }
}

impl Fails for Postgres {
    async fn letter_of(&self, text: String) -> RawLetter {
        run(self, App::postgres(self.pool().clone()), text).await
    }
}

async fn a_nul_in_an_error_is_stored_as_a_sign<B: Fails>(b: B) {
    let letter = b.letter_of("before\0after".into()).await;
    let text = letter.exception.unwrap();
    assert!(text.contains("before␀after"), "{text}");
    assert!(!text.contains('\0'));
    assert_eq!((&*letter.reason, letter.kind.as_deref()), ("retry_terminal", Some("Failed")));
}

async fn a_long_error_is_cut_on_a_character<B: Fails>(b: B) {
    let text = b.letter_of("é".repeat(LIMIT)).await.exception.unwrap();
    assert!(text.len() <= LIMIT && text.len() > LIMIT - 8, "{}", text.len());
    assert!(text.ends_with("é…[truncated]"));
}

async fn an_error_is_stored_with_its_kind<B: Fails>(b: B) {
    let letter = b.letter_of("日本".into()).await;
    assert_eq!(letter.exception.as_deref(), Some("Failed(日本)"));
    assert_eq!(letter.kind.as_deref(), Some("Failed"));
}

cases! {
    a_nul_in_an_error_is_stored_as_a_sign,
    a_long_error_is_cut_on_a_character,
    an_error_is_stored_with_its_kind,
}
