//! Encodings of payloads other than JSON, and of the user's own.

use serde::{Deserialize, Serialize};

#[cfg(any(feature = "cbor", feature = "msgpack"))]
use super::codec::{DecodeError, path};
#[cfg(feature = "cbor")]
use super::{count, lenient::Lenient};

use crate::error::BoxError;

/// An encoding of payloads.
///
/// [`Outgoing::encoded`](crate::Outgoing::encoded) publishes with it. JSON and,
/// with the features `msgpack` and `cbor`, [`MessagePack`] and [`Cbor`] are
/// recognised by their content type; for another one the handler takes
/// [`Encoded<C, T>`](Encoded), which still reads those by theirs.
///
/// # Examples
/// ```
/// use outbox::{BoxError, Codec, Encoded, Outgoing, subscriber};
/// use serde::{Deserialize, Serialize};
///
/// /// JSON turned around.
/// struct Mirrored;
///
/// impl Codec for Mirrored {
///     const CONTENT_TYPE: &'static str = "application/x-mirrored";
///
///     fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, BoxError> {
///         let mut bytes = serde_json::to_vec(value)?;
///         bytes.reverse();
///         Ok(bytes)
///     }
///
///     fn decode<T: for<'a> Deserialize<'a>>(payload: &[u8]) -> Result<T, BoxError> {
///         let bytes: Vec<u8> = payload.iter().rev().copied().collect();
///         Ok(serde_json::from_slice(&bytes)?)
///     }
/// }
///
/// #[subscriber("orders")]
/// async fn confirm(order: Encoded<Mirrored, i64>) {
///     println!("order {}", *order);
/// }
///
/// let message = Outgoing::encoded::<Mirrored>("orders", &70);
/// ```
pub trait Codec: 'static {
    /// The header `content-type` of what it writes.
    const CONTENT_TYPE: &'static str;

    /// Writes a value.
    ///
    /// # Errors
    /// When the value has no such form.
    fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, BoxError>;

    /// Reads a value, from any bytes without overflowing the stack.
    ///
    /// # Errors
    /// When the bytes are not what `T` expects. The text is not kept, as it may
    /// quote the payload, but that of a [`DecodeError`](crate::DecodeError) is.
    fn decode<T: for<'a> Deserialize<'a>>(payload: &[u8]) -> Result<T, BoxError>;
}

/// MessagePack, with the names of fields.
#[cfg(feature = "msgpack")]
#[derive(Debug, Clone, Copy)]
pub struct MessagePack;

#[cfg(feature = "msgpack")]
impl Codec for MessagePack {
    const CONTENT_TYPE: &'static str = "application/msgpack";

    fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, BoxError> {
        Ok(rmp_serde::to_vec_named(value)?)
    }

    fn decode<T: for<'a> Deserialize<'a>>(payload: &[u8]) -> Result<T, BoxError> {
        Ok(read_msgpack(payload)?)
    }
}

/// Reads MessagePack, lending from the payload; nested 128 deep at most.
#[cfg(feature = "msgpack")]
pub(super) fn read_msgpack<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, DecodeError> {
    let unexpected = |path| DecodeError::Binary { encoding: "MessagePack", path };
    let reader = || {
        let mut reader = rmp_serde::Deserializer::from_read_ref(payload);
        reader.set_max_depth(128);
        reader
    };
    let mut first = reader();
    let Ok(value) = T::deserialize(&mut first) else {
        // As with JSON, the place is looked for only when there is an error.
        let again = serde_path_to_error::deserialize::<_, T>(&mut reader());
        return Err(unexpected(again.err().map(|error| path(error.path())).unwrap_or_default()));
    };
    match serde::de::IgnoredAny::deserialize(&mut first) {
        // Nothing to begin another value with.
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(value),
        // More follows the value.
        _ => Err(unexpected(String::new())),
    }
}

/// CBOR, of half a million values at most in one message.
#[cfg(feature = "cbor")]
#[derive(Debug, Clone, Copy)]
pub struct Cbor;

#[cfg(feature = "cbor")]
impl Codec for Cbor {
    const CONTENT_TYPE: &'static str = "application/cbor";

    fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, BoxError> {
        let mut bytes = Vec::new();
        ciborium::into_writer(value, &mut bytes)?;
        Ok(bytes)
    }

    fn decode<T: for<'a> Deserialize<'a>>(payload: &[u8]) -> Result<T, BoxError> {
        Ok(read_cbor(payload)?)
    }
}

/// Reads CBOR, nested 128 deep at most. It lends nothing: texts may be in pieces.
///
/// By way of ciborium's `Value`, of which a byte can make 32: so a payload of very many
/// values is refused.
#[cfg(feature = "cbor")]
pub(super) fn read_cbor<'a, T: Deserialize<'a>>(payload: &[u8]) -> Result<T, DecodeError> {
    let unexpected = |path| DecodeError::Binary { encoding: "CBOR", path };
    let value = values(payload).map_err(|_| unexpected(String::new()))?;
    if let Ok(read) = value.deserialized() {
        return Ok(read);
    }
    // Few producers need this, and few payloads the place of their error.
    serde_path_to_error::deserialize(Lenient(&value))
        .map_err(|error| unexpected(path(error.path())))
}

#[cfg(feature = "cbor")]
fn values(payload: &[u8]) -> Result<ciborium::Value, BoxError> {
    if payload.len() > count::MOST {
        whole::<count::Values>(payload)?;
    }
    whole(payload)
}

#[cfg(feature = "cbor")]
fn whole<T: serde::de::DeserializeOwned>(mut payload: &[u8]) -> Result<T, BoxError> {
    let value = ciborium::de::from_reader_with_recursion_limit(&mut payload, 128)?;
    if payload.is_empty() { Ok(value) } else { Err("more follows the value".into()) }
}

/// A payload of an encoding of the user's own, as the first parameter of a handler.
///
/// One whose content type names JSON (`+json`, too), MessagePack or CBOR, and not what `C`
/// writes, is read as that: so a queue can change its encoding while it holds messages.
/// Everything else is read with `C`.
#[derive(Debug, Clone, Copy)]
pub struct Encoded<C, T> {
    value: T,
    codec: std::marker::PhantomData<fn() -> C>,
}

impl<C, T> Encoded<C, T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value, codec: std::marker::PhantomData }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<C, T> std::ops::Deref for Encoded<C, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A payload that is read as JSON whatever its content type says, as the first
/// parameter of a handler.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);
