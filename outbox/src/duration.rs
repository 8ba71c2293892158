//! Durations as people write them: `90s`, `1h 30m`.

use std::time::Duration;

/// Reads a duration as `humantime` does, but refuses months: `5M` is meant as minutes.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text.contains('M') {
        return Err(format!("{text:?} is in months; minutes are `m`"));
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
    }
}
