//! Wakes that get lost, come late, and break off.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::world::World;
use crate::error::StoreError;
use crate::store::{Result, Wake, Wakes};
use crate::unpoisoned::Locked as _;

/// A subscription, as the publishers see it.
#[derive(Default)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    wakes: VecDeque<Wake>,
    /// The queues whose subscribers sleep. Without it, everybody is woken.
    asleep: Option<Vec<String>>,
    broken: bool,
}

impl Mailbox {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.locked())
    }

    /// Whether anybody in this process is to be woken for the queue.
    pub(super) fn wants(&self, queue: &str) -> bool {
        self.with(|state| {
            state.asleep.as_ref().is_none_or(|them| them.iter().any(|it| it == queue))
        })
    }

    pub(super) fn put(&self, wake: Wake) {
        self.with(|state| state.wakes.push_back(wake));
        self.filled.notify_one();
    }

    pub(super) fn cut(&self) {
        self.with(|state| state.broken = true);
        self.filled.notify_one();
    }
}

/// A subscription, as the engine sees it.
pub(crate) struct FaultyWakes {
    pub(super) world: Arc<World>,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Wakes for FaultyWakes {
    async fn next(&mut self) -> Result<Wake> {
        loop {
            let (wake, broken) = self.mailbox.with(|state| (state.wakes.pop_front(), state.broken));
            if broken {
                return Err(StoreError::new("listen", "the connection broke off", true));
            }
            if let Some(wake) = wake {
                self.world.moment().pass().await;
                return Ok(wake);
            }
            self.mailbox.filled.notified().await;
        }
    }

    async fn sleep_on(&mut self, queues: &[&str]) -> Result<()> {
        self.world.moment().pass().await;
        if self.world.weather.wakes_only_sleepers {
            let asleep = queues.iter().map(ToString::to_string).collect();
            self.mailbox.with(|state| state.asleep = Some(asleep));
            // For what was published in between.
            self.mailbox.put(Wake::All);
        }
        Ok(())
    }
}
