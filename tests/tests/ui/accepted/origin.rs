//! The origin is the line of the fn's name.
#![deny(warnings)]

use outbox::subscriber;

#[subscriber(
    "orders",
    retry = Exponential(initial = "1s")
)]
#[inline]
async fn confirm(_: u64) {}

pub(super) fn main() {
    let origin = confirm::subscriber().origin();
    assert_eq!(origin.line, 11);
    assert_eq!(origin.module, module_path!());
    assert_eq!(origin.file, file!());
}
