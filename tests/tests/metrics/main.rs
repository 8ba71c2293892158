//! What an exporter of the `metrics` crate has: it agrees with the tables, and with the
//! dashboard and the alerts.

mod audit;
mod faults;
mod files;
mod gauges;
mod labels;
mod page;
mod panics;
mod process;
mod script;
mod sums;
mod values;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sums::Sums;

/// One for all tests, as in a program; so each test has queues of its own.
static EXPORTER: LazyLock<PrometheusHandle> =
    LazyLock::new(|| builder().install_recorder().unwrap());

fn builder() -> PrometheusBuilder {
    PrometheusBuilder::new().set_buckets(&[0.005, 0.05, 0.5, 5.0]).unwrap()
}

/// What Prometheus would scrape now.
fn scrape() -> Sums {
    Sums::read(&EXPORTER.render())
}

/// Values by the values of labels.
type Counts = BTreeMap<Vec<String>, i64>;

/// Of labels with spaces between them.
fn counts(of: &[(&str, i64)]) -> Counts {
    let key = |labels: &str| labels.split(' ').map(str::to_owned).collect();
    of.iter().map(|(labels, value)| (key(labels), *value)).collect()
}
