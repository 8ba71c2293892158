//! What a recorder was told.

use std::sync::{Arc, Mutex};

use outbox::telemetry::Event;

use crate::wait::eventually;

/// A sink that keeps what it gets.
#[derive(Clone, Default)]
pub struct Kept(Arc<Mutex<Vec<Event>>>);

impl Kept {
    pub fn recorder(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let kept = Arc::clone(&self.0);
        move |event| kept.lock().unwrap().push(event.clone())
    }

    pub fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    /// The names of those about deliveries, in their order.
    pub fn deliveries(&self) -> Vec<&'static str> {
        let events = self.events();
        events.iter().filter(|event| event.delivery().is_some()).map(Event::name).collect()
    }

    pub fn count(&self, name: &str) -> usize {
        self.events().iter().filter(|event| event.name() == name).count()
    }

    /// Waits for so many, the last of those that come: a stop waits for a second only.
    pub async fn gets(&self, count: usize, name: &str) {
        eventually(name, async || self.count(name) >= count).await;
    }
}
