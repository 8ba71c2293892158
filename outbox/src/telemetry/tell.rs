//! Tells what becomes of the deliveries of one subscriber: it counts, and hands the events to
//! recorders and metrics.

use std::sync::Arc;
use std::time::Duration;

use super::events::{Close, Report};
use super::names::{TARGET, event};
use super::recorder::Sinks;
use super::stats::Counters;
use super::{Delivery, Event, Stats};
use crate::subscriber::Subscriber;
use crate::telemetry::{debug, warn};

/// The names of a subscriber and its queues, and who hears of its deliveries.
pub(crate) struct Teller {
    counters: Arc<Counters>,
    queues: Vec<Arc<str>>,
    sinks: Sinks,
    /// Absent if the exporter panicked when they were made.
    #[cfg(feature = "metrics")]
    meters: Option<super::facade::Meters>,
}

impl Teller {
    pub(crate) fn of(subscriber: &Subscriber, stats: &Stats, sinks: &Sinks) -> Self {
        let queues: Vec<Arc<str>> = subscriber.queues().iter().map(|one| (**one).into()).collect();
        Self {
            counters: stats.of(subscriber),
            #[cfg(feature = "metrics")]
            meters: super::facade::Meters::of(subscriber.name(), &queues),
            queues,
            sinks: sinks.clone(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.counters.name()
    }

    /// The place of a queue among those of the subscriber.
    pub(crate) fn place_of(&self, queue: &str) -> usize {
        self.queues.iter().position(|known| **known == *queue).unwrap_or_default()
    }

    pub(crate) fn queue(&self, place: usize) -> &str {
        self.queues.get(place).map_or("", |queue| &**queue)
    }

    fn shared_queue(&self, place: usize) -> Arc<str> {
        self.queues.get(place).map_or_else(|| "".into(), Arc::clone)
    }

    pub(crate) fn fetched(&self, count: usize) {
        let (queue, subscriber) = (self.queue(0), self.name());
        debug!(target: TARGET, event = event::FETCHED, queue, subscriber, count);
        #[cfg(feature = "metrics")]
        self.meters.iter().for_each(|meters| meters.fetched(count));
        self.sinks.tell(|| Event::Fetched { queue: self.shared_queue(0), subscriber, count });
    }

    pub(crate) fn waited_too_long(&self) {
        self.counters.waited_too_long();
        #[cfg(feature = "metrics")]
        self.meters.iter().for_each(super::facade::Meters::waited_too_long);
        let subscriber = self.name();
        self.sinks.tell(|| Event::WaitedTooLong { queue: self.shared_queue(0), subscriber });
    }

    /// Handlers still run when the drain's time is over.
    pub(crate) fn drain_timeout(&self, handlers: usize, limit: Duration) {
        let (queue, subscriber) = (self.queue(0), self.name());
        warn!(
            target: TARGET, event = event::DRAIN_TIMEOUT, queue, subscriber, handlers,
            drain_timeout_seconds = limit.as_secs_f64(),
            "handlers still run when the drain's time is over; their messages come back, unless they \
             were acked first or it was said before what becomes of them"
        );
        #[cfg(feature = "metrics")]
        self.meters.iter().for_each(super::facade::Meters::drain_timeout);
        self.sinks.tell(|| Event::DrainTimeout {
            queue: self.shared_queue(0),
            subscriber,
            handlers,
            limit,
        });
    }

    /// A handler failed on a message that was acked before.
    pub(crate) fn failed_after_ack(&self, queue: &str, exception_type: &str) {
        #[cfg(feature = "metrics")]
        if let Some(meters) = &self.meters {
            meters.failed_after_ack(self.place_of(queue), exception_type);
        }
        let _ = (queue, exception_type);
    }

    pub(super) fn dispatched(&self, report: &Report, wait: Duration, size_bytes: usize) {
        self.counters.dispatched();
        #[cfg(feature = "metrics")]
        self.meters.iter().for_each(|meters| meters.dispatched(report, wait, size_bytes));
        self.sinks.tell(|| Event::Dispatched { delivery: self.delivery(report), size_bytes, wait });
    }

    pub(super) fn closed(&self, report: &Report, how: Close) {
        self.counters.closed(how, report.duration);
        #[cfg(feature = "metrics")]
        self.meters.iter().for_each(|meters| meters.closed(report, how));
        self.sinks.tell(|| self.closing(report, how));
        if let Close::Terminal { reason, dead_letter: true } = how {
            self.sinks.tell(|| Event::DeadLetterWritten {
                delivery: self.delivery(report),
                reason,
                exception_type: report.exception_type.as_deref().map(Into::into),
            });
        }
    }

    fn closing(&self, report: &Report, how: Close) -> Event {
        let (delivery, duration) = (self.delivery(report), report.duration);
        let exception_type = || report.exception_type.as_deref().map(Into::into);
        match how {
            Close::Acked => Event::Acked { delivery, duration },
            Close::Retried { next_delay } => {
                Event::Retried { delivery, duration, next_delay, exception_type: exception_type() }
            }
            Close::Snoozed { next_delay } => Event::Snoozed { delivery, duration, next_delay },
            Close::Terminal { reason, .. } => {
                Event::Terminal { delivery, duration, reason, exception_type: exception_type() }
            }
            Close::LeaseLost { unknown, .. } => {
                Event::LeaseLost { delivery, duration, phase: how.phase(), unknown }
            }
            Close::Abandoned => Event::Abandoned { delivery, duration },
        }
    }

    fn delivery(&self, report: &Report) -> Delivery {
        Delivery {
            queue: self.shared_queue(report.queue),
            subscriber: self.name(),
            row_id: report.id,
            deliveries_count: report.deliveries_count,
        }
    }

    /// Who hears of messages that were written with acks.
    pub(crate) fn sinks(&self) -> &Sinks {
        &self.sinks
    }
}
