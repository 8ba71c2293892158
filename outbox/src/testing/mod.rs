//! Tests of handlers: the real engine over rows in memory, in virtual time.

mod broker;
mod call;
mod drive;
mod setup;
pub(crate) mod simulate;

pub use broker::TestBroker;
pub use call::{Call, Ending};
pub use simulate::Simulation;

/// The stores themselves, for the conformance suite. Not public API.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod store {
    pub use super::simulate::{Fault, Place, Told};
    use crate::extract::Context;
    pub use crate::store::memory::{Change, MemoryStore, MemoryTransaction, Statement};
    #[cfg(feature = "postgres")]
    pub use crate::store::postgres::{Commits, PgStore};
    #[cfg(feature = "sqlite")]
    pub use crate::store::sqlite::SqliteStore;
    pub use crate::store::{
        Before, Claim, Claimed, Death, Depth, Expects, Extend, FEW, Inserted, Landed, Lease,
        Position, Release, Retry, Store, Taken, Wake, Wakes, new_alone_token, new_token,
    };
    use crate::store::{Handled, Result};
    use crate::tracking::Trail;

    /// The token of the claim under which a handler runs.
    #[must_use]
    pub fn token_of(context: &Context) -> uuid::Uuid {
        context.delivery().row.acquired_token.unwrap_or_default()
    }

    /// `Store::ack_publishing` with messages as a handler returns them. The type that it really
    /// takes is private.
    pub async fn ack_publishing<S: Store>(
        store: &S,
        publisher: &crate::Publisher,
        acks: impl IntoIterator<Item = (Lease, Vec<crate::Outgoing>)>,
    ) -> Result<Landed> {
        ack_publishing_counted(store, publisher, acks).await.map(|(landed, _)| landed)
    }

    /// As `ack_publishing`, and also says how many messages were written.
    pub async fn ack_publishing_counted<S: Store>(
        store: &S,
        publisher: &crate::Publisher,
        acks: impl IntoIterator<Item = (Lease, Vec<crate::Outgoing>)>,
    ) -> Result<(Landed, Inserted)> {
        let prepared = acks
            .into_iter()
            .map(|(lease, messages)| Ok((lease, publisher.prepare(messages, &Trail::default())?)))
            .collect::<std::result::Result<Vec<_>, crate::PublishError>>()
            .map_err(|refused| crate::StoreError::new("prepare", refused, false))?;
        let handled: Vec<_> =
            prepared.iter().map(|(lease, messages)| Handled { lease: *lease, messages }).collect();
        store.ack_publishing(&handled).await
    }
}
