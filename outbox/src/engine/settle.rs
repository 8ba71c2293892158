//! The settlers: tasks that take batches of deliveries from `results` and write their settlements,
//! one statement for each kind. A row that somebody has locked holds up no others: it waits in
//! `later`.

use std::sync::Arc;

use super::Shared;
use super::later::{Later, settle_rest};
use super::results::{Letters, Results};
use super::settlement::Settlement;
use super::settling::Settling;
use super::timers::Held;
use super::write::write;
use crate::publish::apart;
use crate::store::Store;

/// A settler: settles what the workers send until they are gone. Acks that become dead letters go to
/// `letters`, unless it writes these itself.
pub(super) async fn run<S: Store>(
    shared: Arc<Shared<S>>,
    results: Arc<Results>,
    letters: Option<Letters>,
) {
    let (store, mut later) = (&shared.store, Later::new(shared.over.clone()));
    later.letters = letters;
    let mut put_off = 0;
    loop {
        let batch = tokio::select! {
            biased;
            () = later.is_due(), if !later.is_empty() => {
                later.again(store).await;
                if later.is_full() {
                    later.unless_over(results.extend(store)).await;
                }
                results.put_off(&mut put_off, later.waiting().len());
                continue;
            }
            batch = results.next(), if !later.is_full() => batch,
        };
        let Some(batch) = batch else { break };
        settle_some(store, batch, &mut later).await;
        results.put_off(&mut put_off, later.waiting().len());
        results.written();
    }
    settle_rest(store, later).await;
}

/// Writes a batch, except rows that somebody else has locked, which go to `later`. Returns how many
/// landed, not counting those that were given back because their letters could not be written.
pub(super) async fn settle_some<S: Store>(
    store: &S,
    batch: Vec<Settling>,
    later: &mut Later,
) -> usize {
    let [others @ .., publishing, lost] = divided(batch);
    for one in lost {
        one.close(false, false);
    }
    let (mut landed, mut held) = (0, Held::default());
    // Acks that publish come last: their timers may wait for other people's transactions.
    let publishing = apart(publishing, Settling::timers);
    for group in others.into_iter().chain(publishing) {
        let group = held.behind(group, later);
        if !group.is_empty() {
            landed += write(store, group, later).await;
        }
    }
    landed
}

/// The kinds of settlements. Each is a statement, except `Lost`, which is the last of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Acks,
    Retries,
    Deaths,
    Releases,
    Condemned,
    /// Acks with messages.
    Publishing,
    Lost,
}

impl Group {
    fn of(settling: &Settling) -> Self {
        match &settling.settlement {
            Settlement::Ack { messages } if messages.is_empty() => Self::Acks,
            Settlement::Ack { .. } => Self::Publishing,
            Settlement::Retry { .. } => Self::Retries,
            Settlement::Dead(_) => Self::Deaths,
            Settlement::Release { .. } | Settlement::Kept | Settlement::Abandon => Self::Releases,
            Settlement::Condemned => Self::Condemned,
            Settlement::Lost => Self::Lost,
        }
    }
}

/// A batch, divided by kind: the places are those of `Group`.
fn divided(batch: Vec<Settling>) -> [Vec<Settling>; Group::Lost as usize + 1] {
    let mut groups = [const { Vec::new() }; Group::Lost as usize + 1];
    match batch.first().map(Group::of) {
        // Most batches are all of one kind, and stay where they are.
        Some(group) if batch.iter().all(|one| Group::of(one) == group) => {
            groups[group as usize] = batch;
        }
        _ => {
            for one in batch {
                groups[Group::of(&one) as usize].push(one);
            }
        }
    }
    groups
}
