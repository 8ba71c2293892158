//! No lint of the user's crate fires on what is generated.
#![forbid(unsafe_code, non_camel_case_types, unused_imports)]
#![deny(warnings, missing_docs, unreachable_pub, unused_qualifications, unused_results)]
#![deny(missing_debug_implementations, missing_copy_implementations, let_underscore_drop)]

/// Handlers that nothing else uses.
pub mod jobs {
    use outbox::{Context, State, subscriber};

    #[subscriber("q", timeout = "5s", ack = RejectOnError)]
    async fn hidden(_: (), _: State<&'static str>, _: Context) {}

    /// Documented.
    #[subscriber("q")]
    pub async fn seen(_: &[u8]) {}

    #[subscriber("q", publish = "p")]
    async fn returns(_: u64) -> Option<u64> {
        None
    }
}

pub(super) fn main() {}
