//! What travels: the row, its headers, its payload.

pub(crate) mod codec;
pub(crate) mod headers;
pub(crate) mod row;

pub use codec::DecodeError;
pub use headers::{Headers, MalformedHeaders};
pub(crate) use row::to_micros;
pub use row::{DeadLetter, FailureReason, Row};
