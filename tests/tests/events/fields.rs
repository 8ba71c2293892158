//! Every event has the fields that a recorder of metrics needs.

use outbox_tests::capture::{self, Line};

use super::CLOSING;

/// What an event always has, and what it may have besides.
fn of(event: &str) -> (&'static [&'static str], &'static [&'static str]) {
    const RUN: &[&str] = &["duration_seconds", "exception_type"];
    match event {
        "fetched" => (&["queue", "subscriber", "count"], &[]),
        "dispatched" => (
            &["queue", "subscriber", "row_id", "deliveries_count", "size_bytes", "wait_seconds"],
            &[],
        ),
        "dispatch_abandoned" => {
            (&["queue", "subscriber", "row_id", "deliveries_count", "duration_seconds"], &[])
        }
        // What is acked first has not run yet.
        "acked" => (&["queue", "subscriber", "row_id", "deliveries_count"], &["duration_seconds"]),
        "nacked_retried" => (
            &[
                "queue",
                "subscriber",
                "row_id",
                "deliveries_count",
                "duration_seconds",
                "next_delay_seconds",
            ],
            &["exception_type"],
        ),
        "snoozed" => (
            &[
                "queue",
                "subscriber",
                "row_id",
                "deliveries_count",
                "duration_seconds",
                "next_delay_seconds",
            ],
            &[],
        ),
        "nacked_terminal" => {
            (&["queue", "subscriber", "row_id", "deliveries_count", "reason"], RUN)
        }
        "lease_lost" => (
            &["queue", "subscriber", "row_id", "deliveries_count", "phase", "unknown", "message"],
            &["duration_seconds"],
        ),
        "dlq_written" => (
            &["queue", "subscriber", "row_id", "deliveries_count", "failure_reason"],
            &["exception_type"],
        ),
        "drain_timeout" => {
            (&["queue", "subscriber", "handlers", "drain_timeout_seconds", "message"], &[])
        }
        "published" => {
            (&["queue", "status", "count", "size_bytes", "duration_seconds"], &["exception_type"])
        }
        other => panic!("an event that nothing asks for: {other}"),
    }
}

/// Checks every event of a queue, and that every dispatch is closed once, after
/// it began, with the time it took.
#[track_caller]
pub fn check(queue: &str) {
    check_as(queue, false);
}

/// As [`check`]; `first`, if each was acked before it ran.
#[track_caller]
pub fn check_as(queue: &str, first: bool) {
    let events = capture::events(queue);
    events.iter().for_each(check_fields);
    let mut open = Vec::new();
    for line in &events {
        let delivery = || (line.get("row_id").unwrap(), line.get("deliveries_count").unwrap());
        match line.event().unwrap() {
            "dispatched" => open.push(delivery()),
            closing if CLOSING.contains(&closing) => {
                let judged = line.get("reason") == Some("max_deliveries");
                let at = open.iter().position(|one| *one == delivery());
                assert_eq!(at.is_none(), judged, "{closing} closes nothing: {line:?}");
                let untimed = judged || first;
                assert_eq!(line.get("duration_seconds").is_none(), untimed, "{line:?}");
                if let Some(at) = at {
                    open.remove(at);
                }
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}

#[track_caller]
fn check_fields(line: &Line) {
    let event = line.event().unwrap();
    let (always, sometimes) = of(event);
    for field in always {
        assert!(line.get(field).is_some(), "{event} has no {field}: {line:?}");
    }
    for field in line.fields.keys().filter(|field| *field != "event") {
        let known = always.contains(&field.as_str()) || sometimes.contains(&field.as_str());
        assert!(known, "{event} has the field {field} as well: {line:?}");
    }
    for (field, value) in &line.fields {
        if field.ends_with("_seconds") {
            assert!(value.parse::<f64>().is_ok_and(|seconds| seconds >= 0.0), "{field}: {value}");
        }
        if field.ends_with("count") || field.ends_with("_bytes") {
            assert!(value.parse::<u64>().is_ok(), "{field}: {value}");
        }
    }
    assert_eq!(line.target, "outbox");
}
