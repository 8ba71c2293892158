//! What a doctor finds: each cause planted, on both databases where both can have it.

mod connections;
mod file;
mod payloads;
mod pooler;
mod queues;
mod report;
mod schema;
mod server;
mod sharing;

use outbox::App;
use outbox::ops::doctor::{Finding, Limits, Report, Severity};
use outbox_tests::db::Db;
use outbox_tests::wait::PATIENCE;

/// A busy machine is not what they look for.
fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.notification = PATIENCE;
    limits
}

/// From a task, so that it is seen to be one that can be sent.
async fn examine(app: App, limits: Limits) -> Report {
    let doctor = app.doctor().unwrap().limits(limits);
    tokio::spawn(async move { doctor.examine().await }).await.unwrap().unwrap()
}

async fn of(db: &Db) -> Report {
    examine(db.app(), limits()).await
}

/// What a check found.
fn by<'a>(report: &'a Report, check: &str) -> Vec<&'a Finding> {
    report.findings.iter().filter(|one| one.check == check).collect()
}

/// The one thing that a check found, which has to weigh so much.
#[track_caller]
fn one<'a>(report: &'a Report, check: &str, severity: Severity) -> &'a Finding {
    let found = by(report, check);
    assert_eq!(found.len(), 1, "{report:#?}");
    assert_eq!(found[0].severity, severity, "{found:#?}");
    assert!(!found[0].why.is_empty() && !found[0].mend.is_empty(), "{found:#?}");
    found[0]
}
