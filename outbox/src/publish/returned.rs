//! Messages that handlers returned.

use super::publisher::Publisher;
use super::tally::Tally;
use super::timers::apart;
use super::{Prepared, Published, Transaction, left_out};
use crate::error::StoreError;
use crate::store::{CLAIM_BYTES, Handled};

/// What the handlers of a transaction returned, of each statement: as a rule all of it. One that
/// is sent after another one may lock only timers that the first has locked, or transactions would
/// wait for each other; see [`in_lock_order`](super::timers::in_lock_order).
pub(crate) fn together<'a>(acks: &[Handled<'a>]) -> Vec<Vec<&'a Prepared>> {
    let all: Vec<_> = acks.iter().flat_map(|handled| handled.messages).collect();
    if all.iter().map(|message| message.bytes()).sum::<usize>() > CLAIM_BYTES {
        let mut each: Vec<_> = all.into_iter().map(|message| vec![message]).collect();
        each.sort_by_key(|message| message[0].timer_id.as_ref().map(|_| message[0].named()));
        return each;
    }
    apart(all, |message| message.timer_id.iter().map(|name| (&message.queue, name)).collect())
}

impl Publisher {
    /// Inserts messages that were checked before. Nobody is told of a duplicate, so it has to be
    /// one: a timer that is not written, and whose name nobody holds, would be lost with the row
    /// it is returned for.
    pub(crate) async fn insert_returned<T: Transaction + ?Sized>(
        &self,
        tx: &mut T,
        messages: &[&Prepared],
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        if messages.is_empty() {
            return Ok(());
        }
        let statements = self.statements();
        let all = tx.insert_batch(statements, messages.iter().copied().cloned().collect()).await?;
        for (&message, mut published) in messages.iter().zip(all) {
            if published == Published::Duplicate && !tx.holds_timer(statements, message).await? {
                // Whoever held it may have settled meanwhile.
                published = tx.insert(statements, message.clone()).await?;
                let lost = published == Published::Duplicate;
                if lost && !tx.holds_timer(statements, message).await? {
                    return Err(left_out("ack and publish"));
                }
            }
            tally.add(message, usize::from(published.id().is_some()));
        }
        Ok(())
    }
}
