//! The page on telemetry has a table of all metrics, as the code has them.

use outbox::telemetry::{METRICS, Metric, MetricKind};

const PAGE: &str = include_str!("../../../outbox/src/docs/telemetry.md");

fn row(metric: &Metric) -> String {
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        _ => "histogram",
    };
    let labels: Vec<_> = metric.labels.iter().map(|label| format!(" `{label}`")).collect();
    format!("| `{}` | {kind} |{} | {} |", metric.name, labels.join(","), metric.help)
}

#[test]
fn the_table_of_metrics_has_every_metric_as_the_code_has_it() {
    let stand = PAGE.lines().filter(|line| line.starts_with("| `outbox_"));
    let expected: Vec<_> = METRICS.iter().map(row).collect();
    assert_eq!(stand.collect::<Vec<_>>(), expected);
}
