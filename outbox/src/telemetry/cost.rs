//! What telling costs if nobody listens: nothing is made.

use std::time::Duration;

use allocation_counter::measure;
use tokio::time::Instant;

use super::{Close, Event, PublishEvent, Report, Sinks, Stats, Teller};
use crate::message::FailureReason;
use crate::subscriber::Subscriber;

fn teller(sinks: &Sinks) -> Teller {
    let subscriber = Subscriber::new("it", ["q", "r"], |_| async {});
    Teller::of(&subscriber, &Stats::default(), sinks)
}

/// A delivery from its claim to each of its ends.
fn deliveries(teller: &Teller) {
    let next_delay = Duration::from_secs(1);
    let reason = FailureReason::Rejected;
    for how in [
        Close::Acked,
        Close::Retried { next_delay },
        Close::Snoozed { next_delay },
        Close::Terminal { reason, dead_letter: true },
        Close::LeaseLost { retry: true, unknown: false },
        Close::Abandoned,
    ] {
        teller.fetched(1);
        let mut report = Report {
            id: 7,
            queue: teller.place_of("r"),
            deliveries_count: 1,
            started: None,
            duration: None,
            exception_type: None,
            put_off: false,
        };
        report.dispatched(Instant::now(), next_delay, 100, teller);
        report.ended();
        report.close(how, teller);
    }
}

#[test]
fn without_a_recorder_a_delivery_is_told_without_an_allocation() {
    let teller = teller(&Sinks::default());
    let cost = measure(|| deliveries(&teller));
    assert_eq!((cost.count_total, cost.bytes_total), (0, 0));
}

#[test]
fn with_a_recorder_the_same_is_measured_to_cost_something() {
    let mut sinks = Sinks::default();
    sinks.add(|_: &Event| {}, &Stats::default());
    let teller = teller(&sinks);
    // The channel allocates for its first events, and an error has a text.
    let mut report = Report {
        id: 7,
        queue: 0,
        deliveries_count: 1,
        started: None,
        duration: None,
        exception_type: Some("Error".into()),
        put_off: false,
    };
    report.dispatched(Instant::now(), Duration::ZERO, 100, &teller);
    let how = Close::Retried { next_delay: Duration::ZERO };
    assert!(measure(|| report.close(how, &teller)).count_total > 0);
}

#[test]
fn without_a_recorder_the_end_of_a_publish_is_told_without_an_allocation() {
    let event = PublishEvent::start("q", 100);
    let sinks = Sinks::default();
    let cost = measure(|| event.end(Ok(1), &sinks));
    assert_eq!(cost.count_total, 0);
}
