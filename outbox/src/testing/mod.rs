//! Tests of handlers: the real engine over rows in memory, on virtual time.

mod broker;
mod drive;

pub use broker::{Call, Ending, TestBroker};

/// The stores themselves, for the conformance suite. Not public API.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod store {
    pub use crate::store::memory::{MemoryStore, MemoryTransaction};
    #[cfg(feature = "postgres")]
    pub use crate::store::postgres::PgStore;
    #[cfg(feature = "sqlite")]
    pub use crate::store::sqlite::SqliteStore;
    pub use crate::store::{
        Before, Claim, Claimed, Death, Extend, Landed, Lease, Release, Retry, Store, Wake, Wakes,
        new_alone_token, new_token,
    };
}
