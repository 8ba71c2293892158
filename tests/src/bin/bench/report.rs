//! What is printed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::meter::Figures;

/// A line of the table, and of the JSON.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Line {
    Report(Box<Report>),
    /// A scenario that came to nothing, and why.
    Failed {
        scenario: String,
        store: String,
        failed: String,
    },
}

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub scenario: String,
    pub store: String,
    pub messages: u64,
    pub msgs_per_s: Option<f64>,
    pub ceiling_per_s: Option<f64>,
    pub ratio: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub connections: Option<i64>,
    pub rss_mb: Option<f64>,
    pub cpu_us_per_msg: Option<f64>,
    pub statements_per_msg: Option<f64>,
    pub wal_bytes_per_msg: Option<f64>,
    pub hot_ratio: Option<f64>,
    /// Figures that only this scenario has.
    #[serde(flatten)]
    pub more: BTreeMap<&'static str, f64>,
    pub bar: Vec<Bar>,
    /// All of them.
    pub met: bool,
}

/// What a figure has to reach.
#[derive(Debug, Clone, Serialize)]
pub struct Bar {
    pub of: String,
    pub value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    pub met: bool,
}

impl Report {
    /// The figures of a median run.
    pub fn of(scenario: &str, store: &str, figures: &Figures) -> Self {
        let each = |total: f64| rounded(total / figures.messages as f64);
        Self {
            scenario: scenario.to_owned(),
            store: store.to_owned(),
            messages: figures.messages,
            msgs_per_s: Some(figures.per_second().round()),
            ceiling_per_s: None,
            ratio: None,
            p50_ms: percentile(&figures.latencies, 0.50),
            p99_ms: percentile(&figures.latencies, 0.99),
            connections: figures.connections,
            rss_mb: Some(figures.rss_mb.round()),
            cpu_us_per_msg: Some(each(figures.cpu.as_secs_f64() * 1e6)),
            statements_per_msg: figures.statements.map(|all| each(all as f64)),
            wal_bytes_per_msg: figures.wal_bytes.map(|all| each(all as f64)),
            hot_ratio: figures.hot_ratio.map(rounded),
            more: BTreeMap::new(),
            bar: Vec::new(),
            met: true,
        }
    }

    /// A figure that was not measured misses its bar.
    pub fn at_least(self, of: &str, value: Option<f64>, bound: f64) -> Self {
        let met = value.is_some_and(|value| value >= bound);
        self.bar(Bar { of: of.to_owned(), value, at_least: Some(bound), at_most: None, met })
    }

    pub fn at_most(self, of: &str, value: Option<f64>, bound: f64) -> Self {
        let met = value.is_some_and(|value| value <= bound);
        self.bar(Bar { of: of.to_owned(), value, at_least: None, at_most: Some(bound), met })
    }

    fn bar(mut self, bar: Bar) -> Self {
        self.met &= bar.met;
        self.bar.push(bar);
        self
    }
}

impl Line {
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("no maps in it")
    }

    pub fn met(&self) -> bool {
        matches!(self, Self::Report(report) if report.met)
    }

    /// Whether there was something to meet: of what failed nobody knows.
    pub fn has_bars(&self) -> bool {
        !matches!(self, Self::Report(report) if report.bar.is_empty())
    }
}

pub fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// In milliseconds.
pub fn percentile(latencies: &[Duration], share: f64) -> Option<f64> {
    let mut sorted = latencies.to_vec();
    sorted.sort();
    let at = (share * (sorted.len().checked_sub(1)?) as f64).round() as usize;
    Some(rounded(sorted[at].as_secs_f64() * 1e3))
}
