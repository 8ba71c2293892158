//! How results write times and durations as JSON: times as RFC 3339 in UTC with microseconds,
//! durations as numbers of seconds.

use std::time::{Duration, SystemTime};

use serde::{Serialize as _, Serializer};

/// The last second of the year 9999, beyond which RFC 3339 has no form.
const LAST: Duration = Duration::from_secs(253_402_300_799);

/// A time as RFC 3339. A time before 1970 becomes the first second of 1970. A time after 9999, such
/// as `infinity`, becomes the last second of 9999.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let within = time.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST);
    humantime::format_rfc3339_micros(within).to_string()
}

pub(crate) fn time<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&rfc3339(*time))
}

// `serialize_with` hands over a reference to the field.
#[allow(clippy::ref_option)]
pub(crate) fn maybe_time<S: Serializer>(
    time: &Option<SystemTime>,
    to: S,
) -> Result<S::Ok, S::Error> {
    time.map(rfc3339).serialize(to)
}

pub(crate) fn seconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

#[allow(clippy::ref_option)]
pub(crate) fn maybe_seconds<S: Serializer>(
    duration: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_of_a_table_can_be_written() {
        use crate::message::row::from_micros;

        assert_eq!(rfc3339(from_micros(1_000_001)), "1970-01-01T00:00:01.000001Z");
        for micros in [i64::MIN, -1, i64::MAX] {
            assert_eq!(rfc3339(from_micros(micros)).len(), "1970-01-01T00:00:01.000001Z".len());
        }
    }
}
