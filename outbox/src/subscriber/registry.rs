//! The handlers of the binary, as `#[subscriber]` registered them.

use super::Subscriber;

/// What the macro submits: how to make the subscriber.
#[derive(Debug)]
pub struct Registered(pub fn() -> Subscriber);

inventory::collect!(Registered);

/// Every annotated handler that is linked into this binary, sorted by its place in the source:
/// inventory promises no order.
pub(crate) fn registered() -> Vec<Subscriber> {
    let mut all: Vec<Subscriber> =
        inventory::iter::<Registered>().map(|Registered(make)| make()).collect();
    all.sort_by_key(|one| (one.origin.module, one.origin.file, one.origin.line, one.name));
    all
}
