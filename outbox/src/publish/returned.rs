//! Messages that handlers returned.

use super::publisher::Publisher;
use super::tally::Tally;
use super::timers::apart;
use super::{Prepared, Published, Transaction, left_out};
use crate::error::StoreError;
use crate::store::{CLAIM_BYTES, Handled};

/// Divides what the handlers of a transaction returned among statements: mostly one takes all of it.
/// A later statement may lock only timers that an earlier one has locked, or timers that come behind
/// those in the order of [`in_lock_order`](super::timers::in_lock_order). Otherwise two transactions
/// could wait for each other.
pub(crate) fn together<'a>(acks: &[Handled<'a>]) -> Vec<Vec<&'a Prepared>> {
    let mut all: Vec<_> = acks.iter().flat_map(|handled| handled.messages).collect();
    if all.iter().map(|message| message.bytes()).sum::<usize>() <= CLAIM_BYTES {
        let names = |one: &&'a Prepared| one.timer_id.iter().map(|_| one.named()).collect();
        return apart(all, names);
    }
    all.sort_by_key(|message| message.timer_id.as_ref().map(|_| message.named()));
    let (mut parts, mut bytes) = (Vec::<Vec<&Prepared>>::new(), 0);
    for message in all {
        bytes += message.bytes();
        let is_other =
            |last: &&Prepared| message.timer_id.is_none() || last.named() != message.named();
        match parts.last_mut() {
            Some(part) if bytes <= CLAIM_BYTES && part.last().is_none_or(is_other) => {
                part.push(message);
            }
            _ => {
                bytes = message.bytes();
                parts.push(vec![message]);
            }
        }
    }
    parts
}

impl Publisher {
    /// Inserts messages that were checked before. Nobody is told of a duplicate, so it must really
    /// be one: a timer that is not written although no row holds its name would be lost together
    /// with the row whose handler returned it. The transaction is not told to keep them: its handler
    /// has not published them in it.
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
        let all = tx.on().insert_batch(statements, messages).await?;
        let timers: Vec<_> = messages.iter().zip(&all).filter_map(not_written).collect();
        let held = if timers.is_empty() {
            Vec::new()
        } else {
            tx.on().holds_timers(statements, &timers).await?
        };
        let mut held = held.into_iter();
        for (&message, mut published) in messages.iter().zip(all) {
            if published == Published::Duplicate && held.next() == Some(false) {
                // The row that held the name may have been settled meanwhile.
                published = tx.on().insert(statements, message).await?;
                let lost = published == Published::Duplicate;
                if lost && tx.on().holds_timers(statements, &[message]).await? == [false] {
                    return Err(left_out("ack and publish"));
                }
            }
            tally.add(message, published.rows());
        }
        Ok(())
    }
}

fn not_written<'a>((message, published): (&&'a Prepared, &Published)) -> Option<&'a Prepared> {
    (*published == Published::Duplicate).then_some(*message)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::publish::Due;
    use crate::store::{Lease, new_token};

    fn message(timer: Option<&str>, mebibytes: usize) -> Prepared {
        Prepared {
            queue: "q".into(),
            payload: Bytes::from(vec![0; mebibytes << 20]),
            headers: String::new(),
            due: Due::Now,
            timer_id: timer.map(String::from),
            extend: false,
        }
    }

    #[test]
    fn what_is_too_large_for_one_statement_goes_in_as_few_as_hold_it() {
        let mut messages: Vec<_> = (0..40).map(|_| message(None, 1)).collect();
        for name in ["b", "a", "c", "a"] {
            messages.insert(5, message(Some(name), 1));
        }
        let handled = Handled { lease: Lease { id: 1, token: new_token() }, messages: &messages };
        let parts: Vec<(usize, String)> = together(&[handled])
            .iter()
            .map(|part| (part.len(), part.iter().filter_map(|one| one.named().1).collect()))
            .collect();
        let all = [(32, String::new()), (9, "a".into()), (3, "abc".into())];
        assert_eq!(parts, all, "each timer behind those before it, and none twice");
        let few = [message(Some("b"), 1), message(Some("a"), 1), message(Some("b"), 1)];
        let handled = Handled { messages: &few, ..handled };
        assert_eq!(together(&[handled]).iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    }
}
