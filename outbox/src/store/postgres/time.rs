//! `timestamptz` on the wire: microseconds since 2000. It is read and written here, because sqlx's
//! feature for a time crate would change what the user's own queries infer.

use std::time::SystemTime;

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{
    PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef, Postgres,
};
use sqlx::{Decode, Encode, Type};

use crate::message::row::{from_micros, to_micros};

/// Microseconds from 1970 to 2000.
const EPOCH_2000: i64 = 946_684_800_000_000;
/// The range of times that the server can tell from its infinities, since 2000: from 4713 BC to the
/// end of 294276.
const EARLIEST: i64 = -211_813_488_000_000_000;
const END: i64 = 9_223_371_331_200_000_000;

/// The type and its array, as they are numbered on every server. Each connection would have to look
/// them up by their names.
const OID: Oid = Oid(1184);
const ARRAY_OID: Oid = Oid(1185);

/// A `timestamptz`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PgTime(pub(super) SystemTime);

impl Type<Postgres> for PgTime {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(OID)
    }
}

impl PgHasArrayType for PgTime {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(ARRAY_OID)
    }
}

impl<'r> Decode<'r, Postgres> for PgTime {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        if value.format() == PgValueFormat::Text {
            return Err("a timestamptz came as text; the engine uses prepared statements".into());
        }
        let micros = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        Ok(Self(from_micros(since_1970(micros))))
    }
}

impl Encode<'_, Postgres> for PgTime {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend(since_2000(to_micros(self.0)).to_be_bytes());
        Ok(IsNull::No)
    }
}

fn since_1970(since_2000: i64) -> i64 {
    since_2000.saturating_add(EPOCH_2000)
}

fn since_2000(since_1970: i64) -> i64 {
    // What was read as an infinity, or as a time too far off to be told, becomes an infinity again.
    if since_1970 == i64::MAX {
        return i64::MAX;
    }
    match since_1970.saturating_sub(EPOCH_2000) {
        early if early < EARLIEST => i64::MIN,
        late if late >= END => i64::MAX,
        micros => micros,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_are_read_and_written_as_they_are() {
        for micros in [i64::MIN, EARLIEST, -1, 0, 1, 9_000_000_000_000_000_000, i64::MAX] {
            let read = from_micros(since_1970(micros));
            assert_eq!(since_2000(to_micros(read)), micros);
        }
    }
}
