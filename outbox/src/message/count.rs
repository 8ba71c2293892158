//! How many values a payload has, without keeping them.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess};

/// As many values as fit into 16 MiB where a reader keeps them.
pub(super) const MOST: usize = 512 << 10;

/// Counts a value and the values inside it: [`MOST`] at most.
pub(super) struct Values(usize);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

impl Values {
    const ONE: Self = Self(1);

    fn and<E: de::Error>(self, inner: &Self) -> Result<Self, E> {
        let Self(all) = Self(self.0 + inner.0);
        if all > MOST { Err(E::custom("too many values")) } else { Ok(Self(all)) }
    }
}

struct Visitor;

macro_rules! single {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E: de::Error>(self, _: $type) -> Result<Values, E> {
            Ok(Values::ONE)
        })*
    };
}

impl<'de> de::Visitor<'de> for Visitor {
    type Value = Values;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    single!(
        visit_bool: bool, visit_i64: i64, visit_i128: i128, visit_u64: u64, visit_u128: u128,
        visit_f64: f64, visit_str: &str, visit_bytes: &[u8]
    );

    fn visit_none<E: de::Error>(self) -> Result<Values, E> {
        Ok(Values::ONE)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Values, E> {
        Ok(Values::ONE)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Values, A::Error> {
        let mut all = Values::ONE;
        while let Some(item) = items.next_element()? {
            all = all.and(&item)?;
        }
        Ok(all)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Values, A::Error> {
        let mut all = Values::ONE;
        while let Some((key, value)) = entries.next_entry::<Values, Values>()? {
            all = all.and(&key)?.and(&value)?;
        }
        Ok(all)
    }

    /// A tag and the value that it belongs to.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Values, A::Error> {
        let (_, inner) = tagged.variant::<de::IgnoredAny>()?;
        Values::ONE.and(&inner.newtype_variant()?)
    }
}
