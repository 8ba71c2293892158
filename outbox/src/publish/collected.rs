//! What is published with the ack of a delivery.

use std::sync::{Arc, Mutex};

use super::{Outgoing, PublishError};
use crate::unpoisoned::Locked as _;

/// Messages to publish with the ack of a delivery. `None` once the delivery has ended.
#[derive(Clone)]
pub(crate) struct Collected(Arc<Mutex<Option<Vec<Gathered>>>>);

/// A message that was collected.
pub(crate) struct Gathered {
    pub(crate) message: Outgoing,
    /// By the handler, and not by a layer around it.
    pub(crate) within: bool,
}

impl Collected {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(Vec::new()))))
    }

    /// # Errors
    /// When the delivery has ended.
    pub(super) fn push(&self, mut message: Outgoing, within: bool) -> Result<(), PublishError> {
        // The publisher that made it may be the one that collects it, and keeps this collection
        // alive: the message would keep what it is kept in.
        message.publisher = None;
        let mut gathered = self.0.locked();
        gathered.as_mut().ok_or(PublishError::NoDelivery)?.push(Gathered { message, within });
        Ok(())
    }

    /// Returns the messages, and takes none from now on.
    pub(crate) fn end(&self) -> Vec<Gathered> {
        self.0.locked().take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::Context;
    use crate::publish::Publisher;

    /// It would never be freed, whatever became of the delivery.
    #[test]
    fn a_message_that_is_collected_by_the_publisher_that_made_it_does_not_keep_itself() {
        let collected = Collected::new();
        let publisher = Publisher::default().of(&Context::of_test("{}"), Some(collected.clone()));
        publisher.collect(publisher.message("q", &1)).unwrap();
        drop(publisher);
        assert_eq!(Arc::strong_count(&collected.0), 1);
    }
}
