//! Nothing is taken from the prelude.
#![deny(warnings)]

#[no_implicit_prelude]
mod bare {
    #[::outbox::subscriber("q", retry = Exponential, timeout = "5s")]
    async fn handler(_: u64) {}

    #[::outbox::subscriber(["a", "b"], batch = 10, publish = "p")]
    async fn batch(
        all: ::std::vec::Vec<u64>,
    ) -> ::std::result::Result<::std::vec::Vec<u64>, ::std::string::String> {
        ::std::result::Result::Ok(all)
    }
}

pub(super) fn main() {}
