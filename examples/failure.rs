//! Errors that say what they mean for their message.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::prelude::*;
use outbox::testing::TestBroker;

/// A variant that does not say what becomes of its message does not compile.
#[derive(Debug, thiserror::Error, Failure)]
enum MailError {
    #[error("the mail server does not answer")]
    #[retry] // when the strategy says
    Down,
    #[error("too many mails")]
    #[retry(after = "5m")]
    Throttled,
    #[error("{0} is no address")]
    #[reject]
    Address(String),
    #[error("it is night over there")]
    #[snooze("8h")] // neither an attempt nor a delivery is spent
    Night,
}

/// What the mail server will complain about, the last complaint first.
#[derive(Clone)]
struct Server(Arc<Mutex<Vec<MailError>>>);

#[subscriber("mails", retry = Constant("1s", max_attempts = 5))]
async fn send(to: String, State(server): State<Server>) -> Result<(), MailError> {
    if !to.contains('@') {
        return Err(MailError::Address(to));
    }
    server.0.lock().unwrap().pop().map_or(Ok(()), Err)
}

/// Every `Result` can say what its error means, where the error happens.
#[subscriber("imports", retry = Constant("1s", max_attempts = 5))]
fn import(line: &str) -> anyhow::Result<()> {
    let (number, path) = line.split_once(' ').ok_or("no path").or_reject()?;
    let _number: u32 = number.parse().or_reject()?; // trying again mends no number
    match std::fs::read(path) {
        // The file comes later. If it never does, the `expires_in` of the message ends the wait.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err::<(), _>(error).or_snooze(Duration::from_secs(3600))?;
        }
        read => drop(read?),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> outbox::Result<()> {
    let complaints = [MailError::Night, MailError::Throttled, MailError::Down];
    let broker = TestBroker::new().state(Server(Arc::new(Mutex::new(complaints.into()))));
    broker.publish("mails", "ann@example.org").await?;
    broker.run_until_idle().await; // the broker's clock moves, nobody waits
    let start = broker.calls("send")[0].at;
    for call in broker.calls("send") {
        let after = call.at.duration_since(start).unwrap_or_default();
        println!("after {after:?}, {} failed: {:?}", call.attempts, call.ending);
    }

    broker.publish("mails", "bob").await?;
    for line in ["1", "one list.csv", "1 not-there.csv"] {
        broker.publish("imports", line).await?;
        println!("`{line}`: {:?}", broker.calls("import").last().unwrap().ending);
    }
    for dead in broker.dlq_rows() {
        let kind = dead.error_kind.as_deref().unwrap_or("?");
        println!("{}: {} ({kind})", dead.queue, dead.failure_reason);
    }
    Ok(())
}
