//! Reasons not to start a subscriber.

use super::{AckPolicy, Subscriber};
use crate::extract::States;
use crate::publish::check_name;

impl Subscriber {
    /// Every reason not to start it, as a sentence each.
    pub(crate) fn problems(&self, states: &States) -> Vec<String> {
        let states = &states.overlaid(&self.states);
        let mut wrong = self.options.check();
        if self.queues.is_empty() {
            wrong.push("it names no queue".into());
        }
        for (at, queue) in self.queues.iter().enumerate() {
            if let Err(error) = check_name("queue", queue) {
                wrong.push(error.to_string());
            }
            if self.queues[..at].contains(queue) {
                wrong.push(format!("it names the queue `{queue}` twice"));
            }
        }
        let acked_first = self.options.ack == AckPolicy::AckFirst;
        if self.takes_transaction() && acked_first {
            wrong.push(
                "it takes `Tx`, but under `AckFirst` its message is gone before it runs, and there \
                 is no transaction to take; remove the parameter or the `ack` policy"
                    .into(),
            );
        }
        if self.transactions > 1 {
            wrong.push(format!(
                "{} of its parameters take `Tx`, but a run has one transaction, which is lent once; make \
                 them one extractor of yours that holds the `Tx` for all of them",
                self.transactions
            ));
        }
        if self.publishes.is_some() && acked_first {
            wrong.push(
                "it publishes what it returns, but under `AckFirst` its message is gone before it \
                 runs, and there is no ack to publish with; remove `publish` or the `ack` policy"
                    .into(),
            );
        }
        if let Some(Err(error)) = self.publishes.map(|queue| check_name("queue", &queue())) {
            wrong.push(format!("`publish`: {error}"));
        }
        wrong.extend(self.checks.iter().filter_map(|check| check(states).err()));
        wrong
    }
}
