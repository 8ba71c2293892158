//! One payload, decoded as a handler would and dropped. No handler runs.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::payloads::StoredMessage;
use crate::extract::{Common, Context, States};
use crate::publish::Publisher;
use crate::subscriber::{AckPolicy, Read, Subscriber};

/// What the handlers of a program make of payloads.
pub(super) struct Trial {
    readers: BTreeMap<String, (Read, Arc<Common>)>,
    /// Subscribers that decode their messages themselves, where it cannot be tried.
    pub(super) unknown: Vec<&'static str>,
}

impl Trial {
    pub(super) fn new(subscribers: &[Subscriber]) -> Self {
        let (mut readers, mut unknown) = (BTreeMap::new(), Vec::new());
        for subscriber in subscribers {
            let Some(read) = subscriber.decoder() else {
                unknown.push(subscriber.name());
                continue;
            };
            let common = Arc::new(Common {
                subscriber: subscriber.name(),
                states: States::default(),
                publisher: Publisher::default(),
                // It collects nothing.
                ack: AckPolicy::AckFirst,
                threads: Arc::new(Semaphore::new(1)),
            });
            let of_each = |queue: &String| (queue.clone(), (read, Arc::clone(&common)));
            readers.extend(subscriber.queues().iter().map(of_each));
        }
        Self { readers, unknown }
    }

    /// The queues whose payloads can be tried.
    pub(super) fn queues(&self) -> Vec<String> {
        self.readers.keys().cloned().collect()
    }

    /// Whether payloads of the queue can be tried.
    pub(super) fn reads(&self, queue: &str) -> bool {
        self.readers.contains_key(queue)
    }

    /// The subscriber and why it cannot read the payload; `None` when it can.
    pub(super) fn fails(&self, kept: StoredMessage) -> Option<(&'static str, String)> {
        let (read, common) = self.readers.get(&kept.queue)?;
        let context = Context::unclaimed(kept.id, kept.queue, kept.payload, kept.headers, common);
        let why = match catch_unwind(AssertUnwindSafe(|| read(&context))) {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => placeless(&error.error().to_string()),
            Err(_) => "its decoding panics".into(),
        };
        Some((common.subscriber, why))
    }
}

/// An error without the place in the payload, which differs from row to row.
fn placeless(error: &str) -> String {
    let (before, after) = match error.split_once(" at line ") {
        None => (error, ""),
        Some((before, after)) => {
            let place = |c: char| !c.is_ascii_digit();
            let column = after.trim_start_matches(|c: char| c.is_ascii_digit());
            let after = column.strip_prefix(" column ").unwrap_or(column);
            (before, after.find(place).map_or("", |end| &after[end..]))
        }
    };
    let mut text = before.to_owned();
    let mut rest = after;
    // `items[3].price` and `items[4].price` are one mistake.
    while let Some((field, index)) = rest.split_once('[') {
        let end = index.find(']').unwrap_or(0);
        let number = !index[..end].is_empty() && index[..end].bytes().all(|b| b.is_ascii_digit());
        text.push_str(field);
        text.push_str(if number { "[]" } else { "[" });
        rest = if number { &index[end + 1..] } else { index };
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::placeless;

    #[test]
    fn the_same_mistake_in_two_rows_is_one() {
        let error = |line, column, item| {
            format!(
                "not the JSON: missing field `a` at line {line} column {column} in items[{item}].b[x]"
            )
        };
        assert_eq!(placeless(&error(1, 2, 3)), placeless(&error(40, 50, 60)));
        assert_eq!(placeless(&error(1, 2, 3)), "not the JSON: missing field `a` in items[].b[x]");
        assert_eq!(placeless("invalid syntax at line 1 column 7"), "invalid syntax");
        assert_eq!(placeless("no UTF-8 [0"), "no UTF-8 [0");
    }
}
