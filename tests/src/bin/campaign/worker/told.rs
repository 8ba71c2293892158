//! What the framework tells of itself.

use std::fmt;
use std::sync::OnceLock;

use outbox::telemetry::Event;
use tracing::field::{Field, Visit};

use crate::journal::Journal;

pub(super) static TOLD: OnceLock<Journal> = OnceLock::new();

pub(super) fn tell(words: &str) {
    TOLD.get().expect("opened first").write(words);
}

pub(super) fn record(event: &Event) {
    match event {
        Event::LeaseLost { delivery, phase, unknown, .. } => {
            let (id, deliveries) = (delivery.row_id, delivery.deliveries_count);
            tell(&format!("lost {id} {deliveries} {phase} {unknown}"));
        }
        Event::WaitedTooLong { .. } => tell("waited"),
        Event::Listener { up, .. } => tell(&format!("listens {up}")),
        _ => {}
    }
}

/// Warnings and errors, by their message; and when it hears that it is to end.
pub(super) struct Log;

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Log {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                if matches!(field.name(), "message" | "error") {
                    self.0.push_str(&format!(" {value:?}").replace('\n', " "));
                }
            }
        }
        let known = event.metadata().target().starts_with("outbox");
        let level = *event.metadata().level();
        if known && level <= tracing::Level::INFO {
            let mut text = Text(String::new());
            event.record(&mut text);
            if level <= tracing::Level::WARN {
                tell(&format!("log{}", text.0));
            } else if text.0.starts_with(" draining") {
                tell("draining");
            }
        }
    }
}
