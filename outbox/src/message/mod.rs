//! The message: its row, its headers, its payload.

pub(crate) mod codec;
mod codecs;
#[cfg(feature = "cbor")]
mod count;
mod fingerprint;
pub(crate) mod headers;
#[cfg(feature = "cbor")]
mod lenient;
pub(crate) mod row;
mod stored;

pub use codec::DecodeError;
#[cfg(feature = "cbor")]
pub use codecs::Cbor;
#[cfg(feature = "msgpack")]
pub use codecs::MessagePack;
pub use codecs::{Codec, Encoded, Json};
pub(crate) use fingerprint::{Fingerprint, fingerprint};
pub use headers::{Headers, MalformedHeaders};
pub(crate) use row::to_micros;
pub use row::{DeadLetter, FailureReason, Row};
pub(crate) use stored::Stored;
