//! A minute of the fault campaign: the command of the long runs, with whatever seed comes.

use std::process::Command;

use outbox_tests::backend::require;

fn a_minute(store: &str) {
    let run = Command::new(env!("CARGO_BIN_EXE_campaign"))
        .args(["--minutes", "1", "--store", store])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    println!("{said}");
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    // Not by having seen nothing.
    let report = said.lines().last().unwrap();
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    assert!(report["messages"].as_u64() > Some(300), "{report}");
    for id in ["P1", "M1", "D1", "D2", "L1", "L3", "H1", "H3", "C1", "T1", "V1"] {
        assert!(report["properties"][id]["tested"].as_u64() > Some(20), "{id}: {report}");
    }
    for (id, verdict) in report["properties"].as_object().unwrap() {
        assert!(verdict["tested"].as_u64() > Some(0), "{id}: {report}");
    }
    assert!(report["faults"].as_object().unwrap().len() > 4, "{report}");
}

#[test]
fn a_minute_of_faults_breaks_no_promise_on_postgres() {
    if require("postgres") {
        a_minute("postgres");
    }
}

#[test]
fn a_minute_of_faults_breaks_no_promise_on_sqlite() {
    a_minute("sqlite");
}
