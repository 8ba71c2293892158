//! What is told about the process as a whole, and about publishing.

use std::time::Duration;

use super::Event;
use super::recorder::Sinks;
use crate::store::Depth;

impl Sinks {
    /// An app starts.
    pub(crate) fn begin() {
        #[cfg(feature = "metrics")]
        super::facade::process();
    }

    /// Wakes arrive, or do not.
    pub(crate) fn listener(&self, up: bool) {
        #[cfg(feature = "metrics")]
        super::facade::listener(up);
        self.tell(|| Event::Listener { up });
    }

    /// Leases of running handlers could not be extended.
    pub(crate) fn lease_extension_failed(
        &self,
        queue: &str,
        subscriber: &'static str,
        leases: usize,
    ) {
        #[cfg(feature = "metrics")]
        super::facade::lease_extension_failed(queue, subscriber, leases);
        self.tell(|| Event::LeaseExtensionFailed { queue: queue.into(), subscriber, leases });
    }

    /// What a sampler found in the tables.
    pub(crate) fn depths(depths: &[Depth]) {
        #[cfg(feature = "metrics")]
        super::facade::depths(depths);
        #[cfg(not(feature = "metrics"))]
        let _ = depths;
    }

    pub(crate) fn published(
        &self,
        queue: &str,
        count: usize,
        size_bytes: usize,
        duration: Duration,
        exception_type: Option<&'static str>,
    ) {
        #[cfg(feature = "metrics")]
        super::facade::published(queue, count, size_bytes, duration, exception_type);
        self.tell(|| Event::Published {
            queue: queue.into(),
            count,
            size_bytes,
            duration,
            exception_type,
        });
    }
}
