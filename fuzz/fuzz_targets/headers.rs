#![no_main]

#[path = "../targets/mod.rs"]
#[allow(dead_code)] // the others
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::headers::target(data));
