//! Durations for people.

use std::time::Duration;

/// The two largest units of a duration: `3m 12s`.
pub(crate) fn age(duration: Duration) -> String {
    let rounded = match duration.as_secs() {
        0 => Duration::from_millis(duration.subsec_millis().into()),
        1..=59 => {
            Duration::from_millis(u64::try_from(duration.as_millis() / 100).unwrap_or(0) * 100)
        }
        60..=3599 => Duration::from_secs(duration.as_secs()),
        seconds @ 3600..=86_399 => Duration::from_secs(seconds / 60 * 60),
        seconds => Duration::from_secs(seconds / 3600 * 3600),
    };
    let text = humantime::format_duration(rounded).to_string();
    // A month is no multiple of an hour.
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_no_more_digits_than_are_of_use() {
        let of = |seconds: f64| age(Duration::from_secs_f64(seconds));
        assert_eq!(of(0.0123), "12ms");
        assert_eq!(of(0.0), "0s");
        assert_eq!(of(3.19), "3s 100ms");
        assert_eq!(of(192.9), "3m 12s");
        assert_eq!(of(7384.0), "2h 3m");
        assert_eq!(of(90_061.0), "1day 1h");
        assert_eq!(of(400.0 * 86_400.0), "1year 1month");
    }
}
