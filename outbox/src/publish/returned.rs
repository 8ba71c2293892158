//! Messages that handlers returned.

use super::publisher::Publisher;
use super::tally::Tally;
use super::{Prepared, Published, Transaction, left_out};
use crate::error::StoreError;

impl Publisher {
    /// Inserts messages that were checked before. Nobody is told of a duplicate, so it has to be
    /// one: a timer that is not written, and whose name nobody holds, would be lost with the row
    /// it is returned for.
    pub(crate) async fn insert_returned<T: Transaction + ?Sized>(
        &self,
        tx: &mut T,
        messages: &[Prepared],
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        if messages.is_empty() {
            return Ok(());
        }
        let statements = self.statements();
        let all = tx.insert_batch(statements, messages.to_vec()).await?;
        for (message, mut published) in messages.iter().zip(all) {
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
