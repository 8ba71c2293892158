//! Where a page ends and the next one begins.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use crate::message::row::from_micros;
use crate::message::to_micros;

/// A place in the order of letters: by the time of their failure, then by their id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LetterPosition {
    pub(crate) failed_at: SystemTime,
    pub(crate) id: i64,
}

/// Where the next page begins. Its text is opaque: hand it back as it is.
///
/// # Examples
/// ```
/// use outbox::dlq::Cursor;
///
/// assert!("not a cursor".parse::<Cursor>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(pub(crate) LetterPosition);

/// A text that is no [`Cursor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not one that a page ended with; begin without a cursor")]
pub struct CursorError(());

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", to_micros(self.0.failed_at), self.0.id)
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let (time, id) = text.split_once('-').ok_or(CursorError(()))?;
        // `{:x}` writes negative numbers by their bits.
        let number =
            |text| u64::from_str_radix(text, 16).map(u64::cast_signed).map_err(|_| CursorError(()));
        let failed_at = from_micros(number(time)?);
        Ok(Self(LetterPosition { failed_at, id: number(id)? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        for (micros, id) in [(1_763_784_443_123_456, 7), (0, 0), (-1, -1), (1, i64::MAX)] {
            let cursor = Cursor(LetterPosition { failed_at: from_micros(micros), id });
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for wrong in ["", "-", "1", "1-", "x-1", "1-2-3", "1-10000000000000000"] {
            assert!(wrong.parse::<Cursor>().is_err(), "{wrong}");
        }
    }
}
