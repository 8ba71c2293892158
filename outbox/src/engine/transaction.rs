//! Settling in the transaction that was lent to the handler.

use super::Shared;
use super::judge::Ruling;
use super::settle::Settlement;
use crate::extract::{Context, Ended};
use crate::store::{Handled, Lease, Store};
use crate::subscriber::HandlerError;

/// Ends the transaction of a run, if it has one: an ack is written in it, with
/// everything that is published, and commits; anything else rolls it back.
/// Returns what is still to be written, which is nothing after a commit.
pub(super) async fn end<S: Store>(
    shared: &Shared<S>,
    context: &Context,
    lease: Lease,
    mut ruling: Ruling,
) -> Option<Result<Ruling, HandlerError>> {
    let Some(lent) = context.delivery().lent.get() else { return Some(Ok(ruling)) };
    let Settlement::Ack { messages } = &mut ruling.settlement else {
        lent.roll_back().await;
        return Some(Ok(ruling));
    };
    match lent.settle(&shared.publisher, &[Handled { lease, messages }]).await {
        Ok(Ended::Committed) => None,
        Ok(Ended::LeaseLost) => Some(Ok(Ruling::lost())),
        Ok(Ended::Elsewhere(published)) => {
            messages.extend(published);
            Some(Ok(ruling))
        }
        Err(failed) => Some(Err(failed)),
    }
}
