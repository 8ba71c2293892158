//! What is said at the end.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::args::{Args, Course, Goals};
use crate::check::{self, Verdict};
use crate::faults::ASKED;
use crate::history::{History, Op};
use crate::sometimes::{self, Counter};
use crate::workload::EXIT;

/// Violations of a property that are told in full.
const TOLD: usize = 5;
/// Of the rate without faults.
const SHARE: f64 = 0.25;
const KINDS: usize = 12;

/// Rows that left the table, a second.
#[derive(Clone, Copy)]
pub struct Rates {
    pub calm: f64,
    pub shaken: f64,
}

impl Rates {
    pub fn of(history: &History, calm: (i64, i64), shaken: (i64, i64)) -> Self {
        let rate = |(from, to): (i64, i64)| {
            let gone = history.changes.iter().filter(|change| change.op == Op::Delete);
            let gone = gone.filter(|change| (from..to).contains(&change.at)).count();
            gone as f64 / ((to - from) as f64 / 1e6)
        };
        Self { calm: rate(calm), shaken: rate(shaken) }
    }
}

pub struct Report {
    store: String,
    seed: u64,
    seconds: f64,
    messages: usize,
    bad: usize,
    faults: BTreeMap<String, usize>,
    /// Those that handlers made are not counted.
    injected: usize,
    rates: Rates,
    pub verdicts: Vec<Verdict>,
    counters: Vec<Counter>,
    cells: Vec<Counter>,
    /// What was not reached.
    pub missed: Vec<String>,
}

impl Report {
    pub fn of(
        args: &Args,
        seed: u64,
        course: &Course,
        history: &History,
        rates: Rates,
        took: i64,
    ) -> Self {
        let mut faults: BTreeMap<String, usize> = BTreeMap::new();
        for done in &history.done {
            *faults.entry(done.kind.to_owned()).or_default() += 1;
        }
        for exit in &history.exits {
            use std::os::unix::process::ExitStatusExt as _;
            match (exit.status.signal(), exit.status.code()) {
                (Some(6), _) => *faults.entry("handler aborted".into()).or_default() += 1,
                (_, Some(EXIT)) => *faults.entry("handler exited".into()).or_default() += 1,
                _ => {}
            }
        }
        let mut report = Self {
            store: format!("{:?}", args.store).to_lowercase(),
            seed,
            seconds: took as f64 / 1e6,
            messages: history.biz.len(),
            bad: history.biz.values().filter(|biz| biz.act == "Bad").count(),
            faults,
            injected: history.done.len(),
            rates,
            verdicts: check::all(history),
            counters: sometimes::counters(history),
            cells: sometimes::cells(history),
            missed: Vec::new(),
        };
        if let Some(goals) = course.goals {
            report.measure(goals, course.long);
        }
        report
    }

    fn measure(&mut self, goals: Goals, long: bool) {
        let mut missed = Vec::new();
        let mut ask = |what: &str, has: f64, wants: f64| {
            if has < wants {
                missed.push(format!("{what}: {has:.1}, and not {wants:.1}"));
            }
        };
        ask("faults", self.injected as f64, goals.faults as f64);
        ask("kinds of faults", self.faults.len() as f64, self.kinds() as f64);
        ask("messages", self.messages as f64, goals.messages as f64);
        ask("messages a second under faults", self.rates.shaken, self.rates.calm * SHARE);
        for counter in &self.counters {
            ask(&counter.name, counter.count as f64, (counter.floor * goals.floors) as f64);
        }
        for verdict in &self.verdicts {
            ask(verdict.id, verdict.tested as f64, 1.0);
        }
        if self.store == "postgres" {
            for (name, kinds, doses) in ASKED {
                let had: usize = kinds.iter().filter_map(|kind| self.faults.get(*kind)).sum();
                ask(name, had as f64, doses[usize::from(long)] as f64);
            }
            for cell in &self.cells {
                ask(&cell.name, cell.count as f64, cell.floor as f64);
            }
        }
        if let Some(most) = goals.seconds.filter(|most| self.seconds > *most) {
            missed.push(format!("it took {:.0} s, and not {most:.0}", self.seconds));
        }
        self.missed = missed;
    }

    /// A file has no server and no network.
    fn kinds(&self) -> usize {
        if self.store == "postgres" { KINDS } else { KINDS / 2 }
    }

    pub fn violations(&self) -> usize {
        self.verdicts.iter().map(|verdict| verdict.broken.len()).sum()
    }

    pub fn print(&self) {
        let Self { seed, seconds, messages, bad, rates, .. } = self;
        println!("{} · seed {seed} · {seconds:.0} s", self.store);
        println!("{messages} messages committed, {bad} of them undecodable");
        let (calm, shaken) = (rates.calm, rates.shaken);
        let share = 100.0 * shaken / calm.max(f64::MIN_POSITIVE);
        println!("{calm:.1} a second without faults, {shaken:.1} under them: {share:.0} %");
        println!("{} faults from outside; all {} kinds:", self.injected, self.faults.len());
        self.faults.iter().for_each(|(kind, count)| println!("  {count:5}  {kind}"));
        println!("sometimes:");
        let counts = self.counters.iter().chain(&self.cells);
        counts.for_each(|it| println!("  {:5}  {} (≥ {})", it.count, it.name, it.floor));
        println!("properties, tested and broken:");
        for verdict in &self.verdicts {
            let Verdict { id, promise, tested, broken } = verdict;
            println!("  {id:3} {tested:7} {:4}  {promise}", broken.len());
            broken.iter().take(TOLD).for_each(|what| println!("        ! {what}"));
        }
        println!("  not judged here: N1 R1 Z2 X1 B1, see docs/guarantees.md");
        self.missed.iter().for_each(|what| println!("missed: {what}"));
        let violations = self.violations();
        println!("{violations} violations, {} goals missed", self.missed.len());
    }

    pub fn json(&self) -> Value {
        let counts = |all: &[Counter]| -> Value {
            all.iter().map(|it| (it.name.clone(), json!(it.count))).collect()
        };
        let properties: Value = self
            .verdicts
            .iter()
            .map(|it| {
                let (broken, first) = (it.broken.len(), it.broken.first());
                let told = json!({ "tested": it.tested, "broken": broken, "first": first });
                (it.id.to_owned(), told)
            })
            .collect();
        json!({
            "store": self.store, "seed": self.seed, "seconds": self.seconds.round(),
            "messages": self.messages, "undecodable": self.bad, "faults": self.faults, "injected": self.injected,
            "calm_per_second": self.rates.calm, "shaken_per_second": self.rates.shaken,
            "sometimes": counts(&self.counters), "cells": counts(&self.cells),
            "properties": properties, "violations": self.violations(), "missed": self.missed,
        })
    }
}
