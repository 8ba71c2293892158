//! The same semantics on every store: each result of a handler, run by the whole
//! engine over PostgreSQL, SQLite and the test broker.

mod batches;
mod endings;
mod expired;
mod fence;
mod hostile;
mod left;
mod policies;
mod publishing;
mod stage;
mod stats;

use std::time::Duration;

use outbox::retry::Constant;
use outbox::{Context, IntoOutcome, Outgoing, Subscriber};
use stage::{Stage, on_all};

const HOUR: Duration = Duration::from_secs(3600);
const MOMENT: Duration = Duration::from_millis(20);

/// A subscriber of `q` that tries again in an hour.
fn it<T: IntoOutcome + Send + 'static>(
    result: impl Fn(&Context) -> T + Send + Sync + 'static,
) -> Subscriber {
    let run = move |context: Context| std::future::ready(result(&context));
    Subscriber::new("it", "q", run).retry(Constant::new(HOUR).jitter(0.0))
}

/// A message of `q`.
fn seven() -> Outgoing {
    Outgoing::new("q", &7)
}
