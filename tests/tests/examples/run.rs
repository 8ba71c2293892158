//! Starts an example as a new user starts it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use outbox_tests::backend::unique;
use outbox_tests::server::scratch;

/// `cargo run --example NAME` in the workspace, with a temporary folder of its own.
pub struct Example {
    command: Command,
    temporary: PathBuf,
}

impl Example {
    pub fn new(name: &str, run: &str) -> Self {
        let mut command = Command::new(env!("CARGO"));
        command.args(["run", "--quiet", "--target-dir"]).arg(target()).args(["--example", name]);
        Self::with(command, name, run)
    }

    /// The program that [`Self::new`] has built and run.
    pub fn built(name: &str, run: &str) -> Self {
        Self::with(Command::new(target().join("debug/examples").join(name)), name, run)
    }

    fn with(mut command: Command, name: &str, run: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let temporary = scratch().join(unique(&format!("{name}-{run}")));
        std::fs::create_dir_all(&temporary).unwrap();
        command.current_dir(root).env("TMPDIR", &temporary);
        for (variable, _) in std::env::vars_os() {
            let text = variable.to_string_lossy();
            if text == "DATABASE_URL" || text.starts_with("OUTBOX_") {
                command.env_remove(&variable);
            }
        }
        Self { command, temporary }
    }

    pub fn database(mut self, url: &str) -> Self {
        self.command.env("DATABASE_URL", url);
        self
    }

    /// Its exit and output; it left no file behind.
    fn output(mut self) -> Output {
        let output = self.command.output().unwrap();
        let left: Vec<_> = std::fs::read_dir(&self.temporary).unwrap().collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        std::fs::remove_dir(&self.temporary).unwrap();
        output
    }

    /// What it prints when all goes well.
    pub fn story(self) -> String {
        let output = self.output();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it says when it fails.
    pub fn complaint(self) -> String {
        let output = self.output();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }
}

/// The folder that this test was built in: `<target>/<profile>/deps/<test>`.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// Asserts that the lines stand there in this order, others between them.
pub fn assert_lines(story: &str, expected: &[&str]) {
    let mut lines = story.lines();
    for line in expected {
        assert!(lines.any(|told| told.trim() == *line), "no `{line}` in its place in:\n{story}");
    }
}
