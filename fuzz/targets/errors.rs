//! Any text as that of an error: kept whole or cut, and never what a database refuses.
//! And as a cursor of a page.

use outbox::dlq::Cursor;
use outbox::retry::NoRetry;
use outbox::testing::TestBroker;
use outbox::{Context, HandlerError, Outgoing, Subscriber};

pub fn target(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    if let Ok(cursor) = text.parse::<Cursor>() {
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }
    let fail = move |_: Context| {
        std::future::ready(Err::<(), _>(HandlerError::new(text.clone(), text.clone())))
    };
    let broker = TestBroker::with([Subscriber::new("fails", "q", fail).retry(NoRetry)]);
    super::run(broker.publish_with(Outgoing::new("q", &7))).unwrap();
    let [letter] = &broker.dlq_rows()[..] else { panic!("not one letter") };
    let texts = [&letter.last_exception, &letter.error_kind, &letter.note, &letter.fingerprint];
    for text in texts.into_iter().flatten() {
        assert!(text.len() <= 8 * 1024 && !text.contains('\0'), "{text:?}");
    }
}
