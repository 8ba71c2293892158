//! Asking before many rows are changed.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::Args;

use super::Trouble;
use super::output::printable_lines;

/// For commands that change many things.
#[derive(Debug, Args)]
pub(super) struct Consent {
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

impl Consent {
    /// Goes on if the person at the terminal agrees to what is about to happen. Where nobody can be
    /// asked, nothing is done without `--yes`.
    pub(super) fn to(&self, what: &str) -> Result<(), Trouble> {
        self.or_else(what, "nothing was done")
    }

    /// As [`Consent::to`]; `done` says what was done by then.
    pub(super) fn or_else(&self, what: &str, done: &str) -> Result<(), Trouble> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            let refusal = format!("{what}: {done}, because nobody agreed; add `--yes`");
            return Err(Trouble::Refused(refusal));
        }
        let _ = write!(io::stderr(), "{}. Go on? [y/N] ", printable_lines(what));
        let _ = io::stderr().flush();
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        match answer.trim() {
            "y" | "Y" | "yes" if read.is_ok() => Ok(()),
            _ => Err(Trouble::Refused(done.into())),
        }
    }
}
