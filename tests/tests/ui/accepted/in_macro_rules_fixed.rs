//! The attribute inside `macro_rules!`, with nothing passed in.
#![deny(warnings)]

macro_rules! fixed {
    () => {
        #[outbox::subscriber("fixed", retry = Constant("1s"))]
        async fn fixed(number: u64, ctx: outbox::Context) {
            let _ = (number, ctx);
        }
    };
}

fixed!();

pub(super) fn main() {
    assert_eq!(fixed::subscriber().queues(), ["fixed"]);
}
