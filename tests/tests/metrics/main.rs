//! What an exporter of the `metrics` crate has: it agrees with the tables, and with the
//! dashboard and the alerts.

mod audit;
mod files;
mod gauges;
mod labels;
mod script;
mod sums;

use std::sync::LazyLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sums::Sums;

/// One for all tests, as in a program; so each test has queues of its own.
static EXPORTER: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    let buckets = [0.005, 0.05, 0.5, 5.0];
    let builder = PrometheusBuilder::new().set_buckets(&buckets).unwrap();
    builder.install_recorder().unwrap()
});

/// What Prometheus would scrape now.
fn scrape() -> Sums {
    Sums::read(&EXPORTER.render())
}
