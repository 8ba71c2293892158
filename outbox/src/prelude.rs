//! What most programs import: `use outbox::prelude::*;`

#[cfg(feature = "macros")]
pub use crate::subscriber;
pub use crate::{App, Context, Failure, Headers, OrVerdict, Outcome, Publisher, Queue, State};
