//! `doctor`: what is wrong, why it matters, what to do.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::output::{measured, printable};
use super::{Context, Done, Trouble};
use crate::ops::doctor::{Limits, Report, Severity};

/// Look for what is wrong, before a deploy and in production.
///
/// Examines the tables and the database. Decodes every row that waits and every failed dead letter
/// with the handlers of this program, without running any. Leaves nothing written. Exits with 1 on errors.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Exit with 1 on warnings, too.
    #[arg(long)]
    strict: bool,
    /// Decode at most this many rows of each table, the oldest first [default: all].
    #[arg(long, value_name = "ROWS")]
    limit: Option<u64>,
    /// How many processes will run this program: their connections are counted together
    /// (PostgreSQL).
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    processes: u32,
    /// How old a snapshot may be (PostgreSQL).
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = crate::duration::parse)]
    snapshot_age: Duration,
    /// How far the database's clock may differ from this machine's.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::duration::parse)]
    clock_difference: Duration,
    /// How long a notification may take to come (PostgreSQL).
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = crate::duration::parse)]
    notification: Duration,
}

impl Doctor {
    pub(super) async fn run(self, context: &Context) -> Result<Done, Trouble> {
        let Self { strict, limit, processes, snapshot_age, clock_difference, notification } = self;
        let limits =
            Limits { processes, snapshot_age, notification, clock_difference, ..Limits::default() };
        let bar = context.out.spinner("examining");
        let told = bar.clone();
        let mut doctor = context.app.doctor()?.limits(limits).on_progress(move |done, of| {
            if of > 0 && told.length() != Some(of) {
                measured(&told, of);
                told.set_message("decoding");
            }
            told.set_position(done);
        });
        if let Some(rows) = limit {
            doctor = doctor.rows(rows);
        }
        let examined = doctor.examine().await;
        bar.finish_and_clear();
        let report = examined?;
        let place = context.operator()?.place();
        context.out.result(&as_json(&place, &report), || as_text(context, &place, &report));
        let bad =
            report.count(Severity::Error) > 0 || strict && report.count(Severity::Warning) > 0;
        Ok(if bad { Done::Bad } else { Done::Good })
    }
}

fn as_json(place: &str, report: &Report) -> serde_json::Value {
    json!({
        "database": place,
        "errors": report.count(Severity::Error),
        "warnings": report.count(Severity::Warning),
        "notes": report.count(Severity::Note),
        "findings": report.findings,
        "checks": report.checks,
    })
}

fn as_text(context: &Context, place: &str, report: &Report) -> String {
    let mut text = format!("{place}\n\n");
    let rows = report.checks.iter().map(|check| {
        let said = check.said.as_deref().unwrap_or("could not be made");
        [check.name.to_owned(), said.to_owned()]
    });
    text.push_str(&context.out.table(["CHECK", "WHAT IT SAW"], rows, None));
    let mut last = "";
    for one in &report.findings {
        let weight = context.out.strong(one.severity.as_str());
        // SQL has lines of its own.
        let mut mend: Vec<_> = one.mend.trim().lines().map(printable).collect();
        let same = std::mem::replace(&mut last, &one.mend) == one.mend;
        if same && mend.len() > 1 {
            mend = vec!["the same SQL mends it".into()];
        }
        let _ = write!(
            text,
            "\n{weight} ({}): {}\n  why: {}\n  do:  {}\n",
            one.check,
            printable(&one.what),
            printable(&one.why),
            mend.join("\n       ")
        );
    }
    let count = |severity| report.count(severity);
    let _ = write!(
        text,
        "\n{} errors, {} warnings, {} notes\n",
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Note)
    );
    text
}
