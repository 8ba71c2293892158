//! What the compiler says about `#[subscriber]`, right and wrong.

pub mod accepted;

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
    // With one that is to run among them, each would be built by itself.
    trybuild::TestCases::new().compile_fail("ui/fail/*.rs");
}

/// How many mistakes these make; the others make one.
const SEVERAL: [(&str, usize); 5] = [
    ("ack_first_with_tx", 2),
    ("batch_with_extractor_of_one", 2),
    ("duration_zero", 2),
    ("publish_result_alias", 3),
    ("two_mistakes", 2),
];

#[test]
fn each_mistake_has_one_error() {
    let fail = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/fail");
    for snapshot in std::fs::read_dir(fail).unwrap().map(|entry| entry.unwrap().path()) {
        if snapshot.extension().is_some_and(|end| end == "stderr") {
            let name = snapshot.file_stem().unwrap().to_str().unwrap();
            let several = SEVERAL.iter().find(|(other, _)| *other == name);
            let said = std::fs::read_to_string(&snapshot).unwrap();
            let errors = said.lines().filter(|line| line.starts_with("error")).count();
            assert_eq!(errors, several.map_or(1, |(_, mistakes)| *mistakes), "{name}");
        }
    }
}
