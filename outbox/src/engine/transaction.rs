//! Settles in the transaction that was lent to the handler: the acks and what is published commit
//! with what the handler wrote, or nothing does. A batch has one transaction for all its messages,
//! so a message that is lost or overruled undoes it for the whole batch.

use super::Shared;
use super::judge::Ruling;
use super::settlement::Settlement;
use crate::extract::{Ended, Lent, Stage};
use crate::store::{Lease, Store};
use crate::subscriber::HandlerError;

/// Ends the transaction of a run. The acks are written in it, with everything that is published,
/// and it commits; without an ack it is rolled back. True when it has committed. Otherwise the
/// rulings, which may have changed, are still to be written.
///
/// # Errors
/// When the commit failed, or may have.
pub(super) async fn end<S: Store>(
    lent: &dyn Lent,
    shared: &Shared<S>,
    leases: &[Lease],
    rulings: &mut [Ruling],
    stages: &[Stage],
) -> Result<bool, HandlerError> {
    let each = leases.iter().zip(&*rulings);
    let acks = each.filter_map(|(lease, ruling)| ruling.settlement.as_handled(*lease));
    let acks: Vec<_> = acks.collect();
    // The same transaction holds what the handler wrote for a message that is now another claim's.
    let lost = rulings.iter().any(|ruling| matches!(ruling.settlement, Settlement::Lost));
    let each = || stages.iter().zip(&*rulings);
    // A layer fails a message that the handler has worked on. The acks of the other messages are
    // undone too, and these run again.
    let overruled = each().any(|(stage, ruling)| *stage == Stage::Overruled && !ruling.is_ack());
    let acked = each().any(|(stage, ruling)| *stage == Stage::Acked && ruling.is_ack());
    // The handler itself has acked nothing. What a layer acks all the same is acked on its own.
    let failed = !acked && stages.iter().any(|stage| *stage != Stage::Outside);
    if acks.is_empty() || lost || overruled || failed {
        lent.roll_back(&shared.publisher, leases).await;
        if lost || overruled {
            undone(rulings);
        }
        return Ok(false);
    }
    match lent.settle(&shared.publisher, &acks, leases).await? {
        Ended::Committed => Ok(true),
        Ended::LeaseLost => {
            undone(rulings);
            Ok(false)
        }
        Ended::Elsewhere(published) => {
            let first = rulings.iter_mut().find_map(|ruling| match &mut ruling.settlement {
                Settlement::Ack { messages } => Some(messages),
                _ => None,
            });
            if let Some(messages) = first {
                // They were published first.
                messages.splice(0..0, published);
            }
            Ok(false)
        }
    }
}

/// The acks were undone. A single row is lost. In a batch, the acked rows were undone with a lost
/// row, or with one that a layer has overruled: they run again.
fn undone(rulings: &mut [Ruling]) {
    let single = rulings.len() == 1;
    for ruling in rulings.iter_mut().filter(|ruling| ruling.is_ack()) {
        let release = Settlement::Release { due_in: None };
        *ruling = Ruling::of(if single { Settlement::Lost } else { release });
    }
}
