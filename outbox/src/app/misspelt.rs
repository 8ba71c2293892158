//! Variables of the environment that are probably meant for us and are not read.

const READ: [&str; 8] = [
    "OUTBOX_TABLE",
    "OUTBOX_SCHEMA",
    "OUTBOX_DLQ_TABLE",
    "OUTBOX_NOTIFY",
    "OUTBOX_PREPARED",
    "OUTBOX_DRAIN_TIMEOUT",
    "OUTBOX_QUEUE_GAUGES",
    "OUTBOX_ASYNC_SETTLES",
];
/// Letters that may be wrong.
const EDITS: usize = 2;

/// Warns of each: the dead letters of a program that sets `OUTBOX_DLQ` are deleted.
pub(super) fn warn() {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if let Some(meant) = meant(&name) {
            tracing::warn!(
                target: crate::telemetry::TARGET,
                "`{name}` is set, and nothing reads it; is `{meant}` meant?"
            );
        }
    }
}

fn meant(name: &str) -> Option<&'static str> {
    let ours = |rest: &&str| !rest.is_empty() && !READ.contains(&name);
    name.strip_prefix("OUTBOX_").filter(ours)?;
    let is_like = |one: &&&str| {
        one.starts_with(name) || name.starts_with(**one) || strsim::levenshtein(one, name) <= EDITS
    };
    READ.iter().find(is_like).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_misspelt_or_cut_short_is_noticed_and_a_variable_of_others_is_not() {
        assert_eq!(meant("OUTBOX_DLQ"), Some("OUTBOX_DLQ_TABLE"));
        assert_eq!(meant("OUTBOX_TABEL"), Some("OUTBOX_TABLE"));
        assert_eq!(meant("OUTBOX_SCHEMA_NAME"), Some("OUTBOX_SCHEMA"));
        for other in ["OUTBOX_TABLE", "OUTBOX_", "OUTBOX_COLOUR", "OUTBOX", "DATABASE_URL"] {
            assert_eq!(meant(other), None);
        }
    }
}
