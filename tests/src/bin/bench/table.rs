//! The reports as one table, in Markdown.

use crate::report::{Bar, Line, Report};

const HEAD: [&str; 15] = [
    "scenario",
    "store",
    "messages",
    "msgs/s",
    "ceiling/s",
    "ratio",
    "p50 ms",
    "p99 ms",
    "conns",
    "RSS MB",
    "cpu us/msg",
    "stmts/msg",
    "WAL B/msg",
    "HOT",
    "bars",
];

pub fn print(lines: &[Line], machine: &str) {
    println!("{machine}\n");
    println!("| {} |", HEAD.join(" | "));
    println!("|{}", "---|".repeat(HEAD.len()));
    for line in lines {
        let cells = match line {
            Line::Report(report) => cells(report),
            Line::Failed { scenario, store, failed } => {
                let mut cells = vec![scenario.clone(), store.clone()];
                cells.resize(HEAD.len() - 1, "–".to_owned());
                cells.push(format!("FAILED: {}", failed.replace('|', "/").replace('\n', " ")));
                cells
            }
        };
        println!("| {} |", cells.join(" | "));
    }
    let barred: Vec<_> = lines.iter().filter(|line| line.has_bars()).collect();
    let met = barred.iter().filter(|line| line.met()).count();
    println!("\n{met} of {} lines that have bars met them\n", barred.len());
}

fn cells(r: &Report) -> Vec<String> {
    let show = |value: Option<f64>| value.map_or("–".to_owned(), |value| value.to_string());
    let mut cells = vec![r.scenario.clone(), r.store.clone(), r.messages.to_string()];
    let connections = r.connections.map(|n| n as f64);
    cells.extend(
        [
            r.msgs_per_s,
            r.ceiling_per_s,
            r.ratio,
            r.p50_ms,
            r.p99_ms,
            connections,
            r.rss_mb,
            r.cpu_us_per_msg,
            r.statements_per_msg,
            r.wal_bytes_per_msg,
            r.hot_ratio,
        ]
        .map(show),
    );
    let more = r.more.iter().map(|(of, value)| format!("{of} {value}"));
    cells.push(more.chain(r.bar.iter().map(bar)).collect::<Vec<_>>().join(", "));
    cells
}

fn bar(bar: &Bar) -> String {
    let value = bar.value.map_or("–".to_owned(), |value| value.to_string());
    let (than, bound) = match (bar.at_least, bar.at_most) {
        (Some(least), _) => ("≥", least),
        (_, most) => ("≤", most.unwrap_or_default()),
    };
    let met = if bar.met { "met" } else { "MISSED" };
    format!("{} {value} {than} {bound} {met}", bar.of)
}
