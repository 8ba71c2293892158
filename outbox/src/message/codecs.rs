//! Encodings of payloads other than JSON, and the user's own.

use serde::{Deserialize, Serialize};

#[cfg(any(feature = "cbor", feature = "msgpack"))]
use super::codec::{DecodeError, path};
#[cfg(feature = "cbor")]
use super::{count, lenient::Lenient};

use crate::error::BoxError;

/// An encoding of payloads.
///
/// [`Outgoing::encoded`](crate::Outgoing::encoded) publishes with it. Handlers
/// recognise JSON, and with the features `msgpack` and `cbor` also [`MessagePack`]
/// and [`Cbor`], by the content type. For another encoding the handler takes
/// [`Encoded<C, T>`](Encoded), which still reads those three by their content types.
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
    /// The header `content-type` of the payloads that it writes.
    const CONTENT_TYPE: &'static str;

    /// Writes a value.
    ///
    /// # Errors
    /// When the encoding cannot hold the value.
    fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, BoxError>;

    /// Reads a value. No bytes may make it overflow the stack.
    ///
    /// # Errors
    /// When the bytes are not what `T` expects. Only the text of a
    /// [`DecodeError`](crate::DecodeError) is kept: any other may quote the payload.
    fn decode<T: for<'a> Deserialize<'a>>(payload: &[u8]) -> Result<T, BoxError>;
}

/// MessagePack. It writes structs with the names of their fields.
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

/// Reads MessagePack that is nested 128 deep at most. Values may borrow from the payload.
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
        // As with JSON, only an error makes it look for the place.
        let again = serde_path_to_error::deserialize::<_, T>(&mut reader());
        return Err(unexpected(again.err().map(|error| path(error.path())).unwrap_or_default()));
    };
    // A type that refuses an array or a map before it looks into it: a payload that ends there has
    // the same error.
    match <()>::deserialize(&mut first) {
        // The payload ends here.
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(value),
        // More follows the value.
        _ => Err(unexpected(String::new())),
    }
}

/// CBOR. One message has half a million values at most.
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

/// Reads CBOR that is nested 128 deep at most. Values borrow nothing: texts may be in pieces.
///
/// It goes through ciborium's `Value`, which can take 32 bytes for one of the payload. So a
/// payload of very many values is refused.
#[cfg(feature = "cbor")]
pub(super) fn read_cbor<'a, T: Deserialize<'a>>(payload: &[u8]) -> Result<T, DecodeError> {
    let unexpected = |path| DecodeError::Binary { encoding: "CBOR", path };
    let value = values(payload).map_err(|_| unexpected(String::new()))?;
    if let Ok(read) = value.deserialized() {
        return Ok(read);
    }
    // Few producers need the lenient reader, and few payloads the place of their error.
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

/// A payload in an encoding of your own, as the first parameter of a handler.
///
/// A payload is read with `C`, unless its content type is not the one of `C` and names JSON
/// (`+json` too), MessagePack or CBOR: then it is read as that. So a queue can change its
/// encoding while it holds messages.
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
