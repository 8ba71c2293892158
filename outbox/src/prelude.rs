//! What most programs import: `use outbox::prelude::*;`

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use crate::Tx;
#[cfg(feature = "macros")]
pub use crate::subscriber;
pub use crate::{
    App, Batch, BatchOutcome, Context, Failure, HandlerResult, Headers, Next, OrVerdict, Outcome,
    Outgoing, Publisher, Queue, Router, State,
};
