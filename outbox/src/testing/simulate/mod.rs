//! Simulation: the loops of several processes over one table in memory. A seed decides the
//! schedule and the faults.

mod chance;
mod idle;
mod ledger;
mod process;
mod store;
mod told;
mod wakes;
mod weather;
mod world;

use std::sync::Arc;
use std::thread::panicking;

use tokio::runtime::Handle;

pub(crate) use store::FaultyStore;
pub use told::{Fault, Place, Told};
pub(super) use world::{Cast, World};

use super::TestBroker;
use crate::error::BoxError;
use crate::redacted::debug_only;
use world::Watch;

/// A run of the real engine, decided by a seed. See [`TestBroker::simulate`].
#[must_use = "nothing is simulated before `run`"]
pub struct Simulation {
    seed: u64,
    watch: Option<Watch>,
}

impl TestBroker {
    #[doc = include_str!("../../docs/simulation.md")]
    pub fn simulate(seed: u64) -> Simulation {
        Simulation { seed, watch: None }
    }
}

impl Simulation {
    /// Runs `test` with the broker. Its handlers run in the simulated processes. When the test is
    /// over, the faults stop and the processes drain.
    ///
    /// # Panics
    /// Prints the seed and panics if:
    /// - The test panics or returns an error.
    /// - A loop of the engine has ended.
    /// - The broker has published before, or lends transactions.
    /// - It is called within another runtime: the simulation has its own.
    pub fn run<T, E>(self, broker: TestBroker, test: T)
    where
        T: AsyncFnOnce(TestBroker) -> Result<(), E>,
        E: Into<BoxError>,
    {
        let seed = self.seed;
        assert!(
            Handle::try_current().is_err(),
            "a simulation has a runtime of its own: call it in a plain `#[test] fn`, and not in a \
             `#[tokio::test]`"
        );
        let _told = Seed(seed);
        // For the waits and jitters of the engine. The generator belongs to this thread.
        fastrand::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap_or_else(|error| panic!("a runtime for the simulation: {error}"));
        runtime.block_on(async {
            let world = World::new(seed, &broker, self.watch);
            broker.simulated(&world);
            let ended = test(broker).await;
            if let Err(error) = ended {
                panic!("the simulated test failed: {}", error.into());
            }
            world.end().await;
        });
    }

    /// Tells `watch` everything that happens, for the tests of the engine. Not public API.
    #[doc(hidden)]
    pub fn watch(self, watch: impl Fn(&Told<'_>) + Send + Sync + 'static) -> Self {
        Self { watch: Some(Arc::new(watch)), ..self }
    }
}

debug_only!(simulation: Simulation => seed);

/// Prints the seed if the run fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if panicking() {
            let seed = self.0;
            eprintln!(
                "the simulation failed with seed {seed}; `TestBroker::simulate({seed})` replays it"
            );
        }
    }
}
