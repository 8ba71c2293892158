//! The statements that end a delivery, or go on with it.

use std::time::Duration;

use outbox::Outgoing;
use outbox::testing::store::{Extend, Lease, Release, Retry, Store, ack_publishing, new_token};
use outbox_tests::letters::death;

use super::books::Books;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    Ack,
    AckPublishing,
    Retry,
    Bury,
    Release,
    Extend,
    /// As `AckFirst` needs it.
    AckKept,
}

impl Settle {
    pub const ALL: [Self; 7] = [
        Self::Ack,
        Self::AckPublishing,
        Self::Retry,
        Self::Bury,
        Self::Release,
        Self::Extend,
        Self::AckKept,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::AckPublishing => "ack and publish",
            Self::Retry => "retry",
            Self::Bury => "bury",
            Self::Release => "release",
            Self::Extend => "extend",
            Self::AckKept => "ack that is kept",
        }
    }

    /// Which leases held.
    pub async fn run(self, books: &Books<'_>, leases: &[Lease]) -> Vec<bool> {
        let (store, leases) = (&books.store, leases.iter().copied());
        let written = match self {
            Self::Ack => store.ack(&leases.collect::<Vec<_>>()).await,
            Self::AckKept => store.durable().ack(&leases.collect::<Vec<_>>()).await,
            Self::AckPublishing => {
                let acks = leases.map(|lease| (lease, vec![Outgoing::new("q", &lease.id)]));
                ack_publishing(store, &books.publisher, acks).await
            }
            Self::Retry => store.retry(&leases.map(retry).collect::<Vec<_>>()).await,
            Self::Bury => store.bury(&leases.map(death).collect::<Vec<_>>()).await,
            Self::Release => store.release(&leases.map(release).collect::<Vec<_>>()).await,
            Self::Extend => {
                let token = new_token();
                let extends = leases.map(|lease| Extend { lease, token });
                store.extend(&extends.collect::<Vec<_>>()).await
            }
        };
        written.unwrap()
    }
}

fn retry(lease: Lease) -> Retry {
    Retry { lease, delay: Duration::from_secs(1) }
}

fn release(lease: Lease) -> Release {
    Release { lease, due_in: None, uncount: 0, claimed_at: None }
}
