//! The plans of statements as they ran, with the rows that each node read: sent by
//! the server beside the answers.

use std::sync::{Arc, Mutex};

use outbox_tests::capture;
use serde_json::Value;
use sqlx::postgres::PgConnectOptions;

/// What connections with these options execute is heard by [`Plans`].
pub fn explained(options: PgConnectOptions) -> PgConnectOptions {
    options.options([
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_analyze", "on"),
        ("auto_explain.log_timing", "off"),
        ("auto_explain.log_wal", "on"),
        ("auto_explain.log_format", "json"),
        ("auto_explain.log_level", "notice"),
    ])
}

/// The plans of statements on one table.
#[derive(Clone)]
pub struct Plans {
    table: String,
    heard: Arc<Mutex<Vec<Plan>>>,
}

#[derive(Clone)]
pub struct Plan {
    pub text: String,
    pub root: Value,
}

impl Plans {
    /// From now on. No other test may use a table of this name.
    pub fn of(table: &str) -> Self {
        let plans = Self { table: table.to_owned(), heard: Arc::default() };
        let (heard, quoted) = (Arc::clone(&plans.heard), format!("\"{table}\""));
        capture::with_the_driver();
        capture::hook(move |line| {
            let Some((_, json)) = line.get("message").and_then(|text| text.split_once("plan:\n"))
            else {
                return;
            };
            let plan: Value = serde_json::from_str(json).unwrap();
            let text = plan["Query Text"].as_str().unwrap_or_default();
            if text.contains(&quoted) {
                let plan = Plan { text: text.to_owned(), root: plan["Plan"].clone() };
                heard.lock().unwrap().push(plan);
            }
        });
        plans
    }

    /// Those since the last call.
    pub fn take(&self) -> Vec<Plan> {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }

    /// What is wrong with a plan over a large table: sequential scans of it, and
    /// nodes that read more rows than `most`.
    pub fn faults(&self, plan: &Plan, most: f64) -> Vec<String> {
        let mut faults = Vec::new();
        plan.each(&mut |node| {
            let (kind, relation) = (node["Node Type"].as_str(), node["Relation Name"].as_str());
            let kind = kind.unwrap_or_default();
            let number = |key: &str| node[key].as_f64().unwrap_or_default();
            let removed = ["Filter", "Index Recheck", "Join Filter"]
                .map(|by| number(&format!("Rows Removed by {by}")));
            let each = number("Actual Rows") + removed.iter().sum::<f64>();
            let read = each * number("Actual Loops");
            let of = relation.unwrap_or_default();
            if kind == "Seq Scan" && of == self.table {
                faults.push(format!("{kind} of {of}, {read} rows"));
            } else if read > most {
                faults.push(format!("{kind} {of} of {read} rows"));
            }
        });
        faults
    }
}

impl Plan {
    fn each(&self, visit: &mut impl FnMut(&Value)) {
        fn below(node: &Value, visit: &mut impl FnMut(&Value)) {
            visit(node);
            for child in node["Plans"].as_array().into_iter().flatten() {
                below(child, visit);
            }
        }
        below(&self.root, visit);
    }

    /// What its statement wrote to the log: records, bytes, and images of whole
    /// pages, of which there is one a page after each checkpoint.
    pub fn wal(&self) -> [u64; 3] {
        ["WAL Records", "WAL Bytes", "WAL FPI"].map(|key| self.root[key].as_u64().unwrap_or(0))
    }

    /// The beginning of its text, without what only the reader of the file needs.
    pub fn name(&self) -> String {
        let lines = self.text.lines().filter(|line| !line.starts_with("--"));
        lines.collect::<Vec<_>>().join(" ").chars().take(300).collect()
    }
}
