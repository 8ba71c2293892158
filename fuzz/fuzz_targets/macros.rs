#![no_main]

#[path = "../../outbox-macros/src/duration.rs"]
mod duration;
#[path = "../../outbox-macros/src/errors.rs"]
mod errors;
#[path = "../../outbox-macros/src/failure/mod.rs"]
mod failure;
#[path = "../../outbox-macros/src/literal.rs"]
mod literal;
#[path = "../../outbox-macros/src/located.rs"]
mod located;
#[path = "../targets/macros.rs"]
mod macros;
#[path = "../../outbox-macros/src/subscriber/mod.rs"]
mod subscriber;
#[path = "../../outbox-macros/src/suggest.rs"]
mod suggest;

libfuzzer_sys::fuzz_target!(|data: &[u8]| macros::target(data));
