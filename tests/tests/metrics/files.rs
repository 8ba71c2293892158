//! The dashboard and the alerts name what the code has, and show all of it.

use std::collections::BTreeSet;
use std::path::Path;

use outbox::telemetry::{METRICS, Metric, MetricKind};
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

/// Metrics that no panel shows, with the reason.
const NOT_SHOWN: [(&str, &str); 3] = [
    ("outbox_received_size_bytes", "sizes seldom change; for who looks for them"),
    ("outbox_published_size_bytes", "as above"),
    ("outbox_publishes_total", "rows and errors are shown, of which it is made"),
];

fn read(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards");
    std::fs::read_to_string(folder.join(file)).unwrap()
}

/// Every expression of the dashboard, with the title of its panel.
fn panels() -> Vec<(String, String)> {
    let board: Value = serde_json::from_str(&read("outbox.json")).unwrap();
    let mut found = Vec::new();
    for panel in board["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap().to_owned();
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push((title.clone(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for variable in board["templating"]["list"].as_array().unwrap() {
        let query = variable["query"].as_str().unwrap();
        if query != "prometheus" {
            found.push((variable["name"].to_string(), query.to_owned()));
        }
    }
    found
}

fn rules() -> Vec<Yaml> {
    let file = YamlLoader::load_from_str(&read("alerts.yml")).unwrap().remove(0);
    let groups = file["groups"].as_vec().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_vec().unwrap().clone()).collect()
}

/// Names of this crate's metrics in an expression, as they stand there.
fn names(expression: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(|c| !is_part(c));
    words.filter(|word| word.starts_with("outbox_")).collect()
}

/// The metric of a name; a histogram has three.
fn metric(name: &str) -> &'static Metric {
    let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    let named = |metric: &&Metric| match metric.kind {
        MetricKind::Histogram => of_histogram == Some(metric.name),
        _ => metric.name == name,
    };
    METRICS.iter().find(named).unwrap_or_else(|| panic!("no metric is called {name}"))
}

/// What may stand in `by (..)` and `{..}` of an expression.
fn labels(expression: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in expression.split("by (").skip(1) {
        let (list, _) = part.split_once(')').unwrap();
        found.extend(list.split(',').map(|label| label.trim().to_owned()));
    }
    for part in expression.split('{').skip(1) {
        let (list, _) = part.split_once('}').unwrap();
        found.extend(list.split(',').map(|pair| {
            let end = pair.find(['=', '!']).unwrap_or_else(|| panic!("{expression}"));
            pair[..end].trim().to_owned()
        }));
    }
    found
}

/// Those that Prometheus adds.
const ADDED: [&str; 3] = ["job", "instance", "le"];

fn check(place: &str, expression: &str) {
    let names = names(expression);
    assert!(!names.is_empty(), "{place}: {expression}");
    let count = |c| expression.matches(c).count();
    assert_eq!((count('('), count('{')), (count(')'), count('}')), "{place}: {expression}");
    let of_all: Vec<_> = names.iter().map(|name| metric(name)).collect();
    for label in labels(expression) {
        let known = ADDED.contains(&&*label)
            || of_all.iter().all(|metric| metric.labels.contains(&&*label));
        assert!(known, "{place}: no label {label} in {expression}");
    }
    for (name, metric) in names.iter().zip(of_all) {
        let at = expression.find(name).unwrap();
        let rated = ["rate(", "increase("].iter().any(|end| expression[..at].ends_with(end));
        let listed = expression[..at].ends_with("label_values(");
        let grows = metric.kind != MetricKind::Gauge;
        assert!(grows == rated || listed, "{place}: a counter has a rate, a gauge none: {name}");
    }
}

#[test]
fn every_metric_and_label_of_the_dashboard_is_one_of_the_code() {
    let panels = panels();
    assert!(panels.len() > 20);
    for (title, expression) in &panels {
        check(title, expression);
    }
}

#[test]
fn every_metric_of_the_code_is_in_the_dashboard_or_said_not_to_be() {
    let panels = panels();
    let shown: BTreeSet<_> = panels
        .iter()
        .flat_map(|(_, expression)| names(expression))
        .map(|name| metric(name).name)
        .collect();
    for metric in METRICS {
        let left_out = NOT_SHOWN.iter().any(|(name, _)| *name == metric.name);
        assert_ne!(shown.contains(metric.name), left_out, "{}", metric.name);
    }
    assert!(NOT_SHOWN.iter().all(|(name, _)| METRICS.iter().any(|one| one.name == *name)));
}

#[test]
fn every_alert_is_complete_and_names_what_the_code_has() {
    let rules = rules();
    assert!(rules.len() > 10);
    let mut seen = BTreeSet::new();
    for rule in &rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(seen.insert(name), "{name} stands there twice");
        check(name, rule["expr"].as_str().unwrap());
        assert!(["page", "ticket"].contains(&rule["labels"]["severity"].as_str().unwrap()));
        for text in ["summary", "description"] {
            let text = rule["annotations"][text].as_str().unwrap_or_else(|| panic!("{name}"));
            assert!(text.len() > 20, "{name}");
            // What a text takes from the series has to be left in it by the expression.
            for label in text.split("$labels.").skip(1) {
                let end = label.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap();
                let left = labels(rule["expr"].as_str().unwrap());
                assert!(left.contains(&label[..end]), "{name}: {label}");
            }
        }
    }
}

#[test]
fn the_reader_of_expressions_finds_what_is_wrong() {
    let refused = |expression: &'static str| {
        std::panic::catch_unwind(|| check("a test", expression)).is_err()
    };
    assert!(!refused("sum by (queue) (rate(outbox_acked_total[5m]))"));
    for wrong in [
        "sum by (queue) (rate(outbox_packed_total[5m]))",
        "sum by (reason) (rate(outbox_acked_total[5m]))",
        "sum by (queue) (outbox_acked_total)",
        "rate(outbox_backlog[5m])",
        "rate(outbox_process_duration_seconds[5m])",
        "outbox_listener_up{queue=\"q\"}",
        "sum by (queue) (rate(outbox_acked_total[5m])",
    ] {
        assert!(refused(wrong), "{wrong}");
    }
}
