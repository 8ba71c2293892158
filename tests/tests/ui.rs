//! What the compiler says about `#[subscriber]`, right and wrong.

use std::process::Command;

use outbox_tests::backend::skip;

/// The compiler whose wording the snapshots keep.
const PINNED: &str = "rustc 1.95.";

#[test]
fn one_mistake_is_one_error_at_its_token() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().unwrap();
    let version = String::from_utf8(output.stdout).unwrap();
    if !version.starts_with(PINNED) {
        skip("ui", &format!("the snapshots are of Rust 1.95, and this is {version}"));
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/fail/*.rs");
    cases.pass("ui/pass/*.rs");
}
