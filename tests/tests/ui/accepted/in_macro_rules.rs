//! The attribute inside `macro_rules!`, with everything passed in.
#![deny(warnings)]

macro_rules! handler {
    ($name:ident, $queue:expr, $ty:ty, $workers:literal, $ttl:expr) => {
        #[outbox::subscriber($queue, max_workers = $workers, lease_ttl = $ttl)]
        async fn $name(payload: $ty, ctx: outbox::Context) {
            let _ = (payload, ctx);
        }
    };
}

const PREFIX: &str = "the ";

handler!(number, "numbers", u64, 5, "5s");
handler!(sum, PREFIX.to_owned() + "sum", u64, 1, "5s");
handler!(raw, ["a", "b"], &[u8], 1, std::time::Duration::from_secs(5));

macro_rules! retried {
    ($name:ident, $strategy:path) => {
        #[outbox::subscriber("retried", retry = $strategy(initial = "1s", max_attempts = 5))]
        async fn $name(_: u64) {}
    };
}

retried!(exponential, Exponential);
retried!(by_path, outbox::retry::Exponential);

pub(super) fn main() {
    let _ = (exponential::subscriber(), by_path::subscriber());
    assert_eq!(number::subscriber().queues(), ["numbers"]);
    assert_eq!(sum::subscriber().queues(), ["the sum"]);
    assert_eq!(raw::subscriber().queues(), ["a", "b"]);
}
