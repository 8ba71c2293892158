//! The report: what was found, and what was looked at.

use serde::Serialize;

use crate::error::Error;

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// Good to know.
    Note,
    /// It works, but slowly or less safely, or it will stop working.
    Warning,
    /// It does not work, or will not with this program: do not deploy it.
    Error,
}

impl Severity {
    /// `note`, `warning` or `error`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One thing that somebody should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The check that found it, as in [`Check::name`].
    pub check: &'static str,
    /// How severe it is.
    pub severity: Severity,
    /// What is the case, with numbers and names. The names of queues and sessions are as others
    /// wrote them: escape them before a terminal gets them.
    pub what: String,
    /// What follows from it.
    pub why: String,
    /// What to do about it; may be SQL.
    pub mend: String,
}

/// A check that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// What it saw, in a few words. `None` when it could not be made, which is a finding, too.
    pub said: Option<String>,
}

/// Everything that the doctor found and looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The findings, the most severe first.
    pub findings: Vec<Finding>,
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
}

impl Report {
    /// How many findings have this severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|one| one.severity == severity).count()
    }

    pub(super) fn add(&mut self, mut found: Found, said: Result<String, Error>) {
        let name = found.check;
        if let Err(error) = &said {
            found.error(
                format!("the check could not be made: {error}"),
                "what it looks for may be there or not",
                "mend what the error names, and run `doctor` again",
            );
        }
        self.findings.append(&mut found.findings);
        self.checks.push(Check { name, said: said.ok() });
    }
}

/// Where a check leaves what it finds.
pub(super) struct Found {
    check: &'static str,
    findings: Vec<Finding>,
}

impl Found {
    pub(super) fn by(check: &'static str) -> Self {
        Self { check, findings: Vec::new() }
    }

    pub(super) fn add(
        &mut self,
        severity: Severity,
        what: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) {
        let (what, why, mend) = (what.into(), why.into(), mend.into());
        self.findings.push(Finding { check: self.check, severity, what, why, mend });
    }

    #[cfg(test)]
    pub(super) fn severities(&self) -> Vec<Severity> {
        self.findings.iter().map(|one| one.severity).collect()
    }
}

macro_rules! weights {
    ($($name:ident: $severity:ident),+) => {
        impl Found {
            $(pub(super) fn $name(
                &mut self,
                what: impl Into<String>,
                why: impl Into<String>,
                mend: impl Into<String>,
            ) {
                self.add(Severity::$severity, what, why, mend);
            })+
        }
    };
}
weights!(error: Error, warning: Warning, note: Note);
