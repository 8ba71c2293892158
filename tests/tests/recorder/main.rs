//! Sinks of the user's own: what they are told, and that they can do no harm.

mod harm;
mod told;

use std::sync::{Arc, Mutex};

use outbox::telemetry::Event;
use outbox_tests::wait::eventually;

/// A sink that keeps what it gets.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Event>>>);

impl Kept {
    fn recorder(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let kept = Arc::clone(&self.0);
        move |event| kept.lock().unwrap().push(event.clone())
    }

    fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    /// The names of those about deliveries, in their order.
    fn deliveries(&self) -> Vec<&'static str> {
        let events = self.events();
        events.iter().filter(|event| event.delivery().is_some()).map(Event::name).collect()
    }

    fn count(&self, name: &str) -> usize {
        self.events().iter().filter(|event| event.name() == name).count()
    }

    /// Waits for so many, the last of those that come: a stop waits for a second only.
    async fn gets(&self, count: usize, name: &str) {
        eventually(name, async || self.count(name) >= count).await;
    }
}
