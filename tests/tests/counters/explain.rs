//! The plans of statements as they ran, with the rows that each node read: sent by
//! the server beside the answers.

use std::collections::BTreeSet;
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
        ("auto_explain.log_buffers", "on"),
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

    /// What is wrong with a plan: sequential scans of the table, and nodes that read
    /// or sort more rows than `most`.
    pub fn faults(&self, plan: &Plan, most: f64) -> Vec<String> {
        let mut faults = Vec::new();
        plan.each(&mut |node| {
            let text = |key: &str| node[key].as_str().unwrap_or_default();
            let number = |key: &str| node[key].as_f64().unwrap_or_default();
            let (kind, relation) = (text("Node Type"), text("Relation Name"));
            let of_table = relation == self.table || text("Index Name").starts_with(&self.table);
            let removed = number("Rows Removed by Filter")
                + number("Rows Removed by Index Recheck")
                + number("Rows Removed by Join Filter");
            let read = (number("Actual Rows") + removed) * number("Actual Loops");
            let scans = kind == "Seq Scan" && relation == self.table;
            let what = if scans { "reads all" } else { "reads too many" };
            if scans || (of_table || kind == "Sort") && read > most {
                faults.push(format!("{kind} {what}"));
            }
        });
        faults
    }
}

fn pages(node: &Value) -> u64 {
    let blocks = ["Shared Hit Blocks", "Shared Read Blocks"];
    blocks.iter().map(|key| node[key].as_u64().unwrap()).sum()
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

    /// What it reads by.
    pub fn indexes(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.each(&mut |node| names.extend(node["Index Name"].as_str().map(str::to_owned)));
        names
    }

    /// What its statement wrote to the log: records, bytes, and images of whole
    /// pages, of which there is one a page after each checkpoint.
    pub fn wal(&self) -> [u64; 3] {
        ["WAL Records", "WAL Bytes", "WAL FPI"].map(|key| self.root[key].as_u64().unwrap_or(0))
    }

    /// Pages that a part of its statement read, as often as it asked for each.
    pub fn buffers(&self, part: &str) -> u64 {
        let mut sum = 0;
        self.each(&mut |node| {
            if node["Subplan Name"] == part {
                sum += pages(node);
            }
        });
        sum
    }

    /// Of the whole.
    pub fn all_buffers(&self) -> u64 {
        pages(&self.root)
    }

    /// The first line of its text, in which each of our files says what it does.
    pub fn name(&self) -> &str {
        self.text.lines().next().unwrap_or_default().trim_start_matches("-- ")
    }
}
