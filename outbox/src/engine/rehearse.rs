//! A trial run of a handler. Nothing of it lasts: its transaction is rolled back.

use std::sync::{Arc, Mutex};

use smallvec::smallvec;
use tokio::time::Instant;

use super::guard::guarded;
use super::judge::{Case, Ruling, rendered};
use super::settlement::Settlement;
use crate::extract::{Common, Context, Delivery, States};
use crate::message::Row;
use crate::publish::{Prepared, Publisher};
use crate::subscriber::{ErrorRenderer, HandlerError, Subscriber};
use crate::tracking;
use crate::unpoisoned::Locked as _;

/// What a delivery would have come to.
pub(crate) struct Rehearsed {
    pub(crate) settlement: Settlement,
    /// The kind of its error, and the text that would be stored.
    pub(crate) error: Option<(String, String)>,
    /// What it published in its transaction, then what it collected or returned.
    pub(crate) messages: Vec<Prepared>,
    /// The handler had the transaction, which is now undone.
    pub(crate) undone: bool,
}

/// Runs the handler on a row that nobody has claimed, with its layers and its timeout, and safe
/// from its panics.
///
/// # Cancel safety
/// A dropped call rolls the transaction back.
pub(crate) async fn rehearse(
    subscriber: &Subscriber,
    states: &States,
    publisher: &Publisher,
    render: &ErrorRenderer,
    row: Row,
) -> Rehearsed {
    let common = Common::of(subscriber, states, publisher, 1);
    let claimed_at = Instant::now();
    let options = &subscriber.options;
    let deadline = claimed_at + options.lease_ttl;
    let delivery = Delivery::new(Box::new(row), &common, claimed_at, deadline);
    let kept = Arc::<Mutex<Vec<Prepared>>>::default();
    let _ = delivery.loan().rehearsed.set(Arc::clone(&kept));
    let context = Context::new(delivery);
    let contexts = [context.clone()];
    let run = guarded(&contexts, || subscriber.call(smallvec![context.clone()]), options.timeout);
    let ended = tracking::handling(&contexts, run).await;
    let result = ended.map_or_else(Err, |mut results| {
        let short = || HandlerError::new(HandlerError::RESULTS, "no result for the message");
        results.pop().unwrap_or_else(|| Err(short()))
    });
    let case = Case { row: &context.delivery().row, options, render, claimed_at };
    let mut ruling = case.rule(&context, result);
    if let (Settlement::Ack { messages }, Some(lent)) =
        (&ruling.settlement, context.delivery().loan().lent.get())
        && let Err(failed) = lent.try_out(publisher, messages).await
    {
        ruling = case.refused(failed);
    }
    let Ruling { mut settlement, error } = ruling;
    let error = error.map(|error| {
        let text = rendered(render, &error).unwrap_or_default();
        (error.kind().to_owned(), text.into_owned())
    });
    let undone = match context.delivery().loan().lent.get() {
        Some(lent) => {
            lent.roll_back(publisher, &[]).await;
            true
        }
        None => false,
    };
    // What is not acked publishes nothing.
    let mut messages = Vec::new();
    if let Settlement::Ack { messages: collected } = &mut settlement {
        messages.append(&mut kept.locked());
        messages.append(collected);
    }
    Rehearsed { settlement, error, messages, undone }
}
