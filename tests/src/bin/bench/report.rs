//! What is printed.

use serde::Serialize;

use crate::meter::Figures;

/// A scenario's last line.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub scenario: String,
    pub store: String,
    pub messages: u64,
    pub msgs_per_s: Option<f64>,
    pub ceiling_per_s: Option<f64>,
    pub ratio: Option<f64>,
    /// What the ratio has to reach.
    pub bar: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub connections: Option<i64>,
    pub rss_mb: Option<f64>,
    pub cpu_us_per_msg: Option<f64>,
    pub statements_per_msg: Option<f64>,
    pub wal_bytes_per_msg: Option<f64>,
    pub hot_ratio: Option<f64>,
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
            bar: None,
            p50_ms: percentile(&figures.latencies, 0.50),
            p99_ms: percentile(&figures.latencies, 0.99),
            connections: figures.connections,
            rss_mb: Some(figures.rss_mb.round()),
            cpu_us_per_msg: Some(each(figures.cpu.as_secs_f64() * 1e6)),
            statements_per_msg: figures.statements.map(|all| each(all as f64)),
            wal_bytes_per_msg: figures.wal_bytes.map(|all| each(all as f64)),
            hot_ratio: figures.hot_ratio.map(rounded),
        }
    }
}

pub fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// In milliseconds.
pub fn percentile(latencies: &[std::time::Duration], share: f64) -> Option<f64> {
    let mut sorted = latencies.to_vec();
    sorted.sort();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let at = (share * (sorted.len().checked_sub(1)?) as f64).round() as usize;
    Some(rounded(sorted[at].as_secs_f64() * 1e3))
}

pub fn print(reports: &[Report], json: bool) {
    if !json {
        println!(
            "| scenario | store | messages | msgs/s | ceiling/s | ratio | bar | p50 ms | p99 ms | conns | cpu us/msg | stmts/msg | WAL B/msg | HOT |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
        for r in reports {
            let show =
                |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value}"));
            println!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                r.scenario,
                r.store,
                r.messages,
                show(r.msgs_per_s),
                show(r.ceiling_per_s),
                show(r.ratio),
                show(r.bar),
                show(r.p50_ms),
                show(r.p99_ms),
                show(r.connections.map(|n| n as f64)),
                show(r.cpu_us_per_msg),
                show(r.statements_per_msg),
                show(r.wal_bytes_per_msg),
                show(r.hot_ratio),
            );
        }
    }
    for report in reports {
        println!("{}", serde_json::to_string(report).unwrap_or_default());
    }
}
