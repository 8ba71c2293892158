//! What the compiler says about `#[subscriber]`, right and wrong.

use std::process::Command;

/// The compiler whose wording the snapshots keep.
const PINNED: &str = "rustc 1.95.";

#[test]
fn one_mistake_is_one_error_at_its_token() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().unwrap();
    let version = String::from_utf8(output.stdout).unwrap();
    if !version.starts_with(PINNED) {
        let skipped = format!("skipped: ui tests run only on Rust 1.95, this is {version}");
        let required = std::env::var("OUTBOX_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name.trim() == "ui"), "{skipped}");
        println!("{skipped}");
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/fail/*.rs");
    cases.pass("ui/pass/*.rs");
}
