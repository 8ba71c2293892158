//! Durations as people write them: `90s`, `1h 30m`.

use std::time::Duration;

/// Reads a duration as `humantime` does, but refuses months: `5M` is meant as minutes. So is a number
/// with a space in it, such as the one of `1 30s`, which would be 130 seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text.contains('M') {
        return Err(format!("{text:?} is in months; minutes are `m`"));
    }
    let (words, begins) = (text.split_whitespace(), |one: char| one.is_ascii_digit() || one == '.');
    let mut pairs = words.clone().zip(words.skip(1));
    let cut = pairs.find(|(one, next)| one.ends_with(begins) && next.starts_with(begins));
    if let Some((number, _)) = cut {
        return Err(format!("{number:?} has no unit"));
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_no_months() {
        assert_eq!(parse("1h 5m"), Ok(Duration::from_secs(3900)));
        assert!(parse("5M").unwrap_err().contains("months"));
        assert!(parse("5").is_err());
        assert_eq!(parse("5 m"), Ok(Duration::from_secs(300)));
        for text in ["1 30s", "1 m 2 5s", "0.5 5s", "1\t.5s"] {
            assert!(parse(text).unwrap_err().contains("has no unit"), "{text}");
        }
    }
}
