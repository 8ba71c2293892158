use std::borrow::Cow;

use outbox::{Queue, State, subscriber};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order<'a> {
    name: &'a str,
    note: Cow<'a, str>,
}

static ORDERS: Queue<Order<'static>> = Queue::new("orders");

#[subscriber(ORDERS)]
async fn shown(order: Order<'_>, State(prefix): State<&'static str>) -> Result<(), String> {
    println!("{prefix}{}{}", order.name, order.note);
    Ok(())
}

#[subscriber("names")]
async fn texts(names: Vec<&str>) {
    println!("{}", names.len());
}

#[subscriber("text")]
async fn text(text: &str) -> usize_or_not::Nothing {
    println!("{text}");
    usize_or_not::Nothing
}

/// A returned type of the user's own.
mod usize_or_not {
    pub struct Nothing;

    impl outbox::IntoOutcome for Nothing {
        fn into_outcome(self) -> outbox::HandlerResult {
            Ok(outbox::Outcome::Ack)
        }
    }
}

pub(super) fn main() {
    for (subscriber, queue) in [(shown::subscriber(), "orders"), (text::subscriber(), "text")] {
        assert_eq!(subscriber.queues(), [queue]);
    }
    assert_eq!(texts::subscriber().name(), "texts");
}
