//! Sequences are made, followed, and made shorter when one fails.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proptest_state_machine::ReferenceStateMachine;

use crate::Operated;
use crate::machine::Reference;
use crate::shares::{Seen, Shares};
use crate::system::System;

/// Steps of a sequence, but for the last one.
const STEPS: std::ops::RangeInclusive<usize> = 10..=60;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Every store is given the same sequences, until it is told another seed.
pub fn follow<B: Operated>() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let Some(bench) = runtime.block_on(B::open()) else { return };
    let seed = number("OUTBOX_MODEL_SEED", 6);
    let cases = u32::try_from(number("OUTBOX_MODEL_SEQUENCES", 1_000)).unwrap();
    let config =
        Config { cases, failure_persistence: None, max_shrink_time: 60_000, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let shares = RefCell::new(Shares::default());
    let done = TestRunner::new_with_rng(config, rng).run(
        &Reference::sequential_strategy(STEPS),
        |(mut reference, steps, taken)| {
            runtime.block_on(async {
                let mut system = System::begin(&bench, reference.rules).await;
                let mut seen = Seen::default();
                for step in steps {
                    // By this the runner knows which steps were not reached.
                    taken.as_ref().inspect(|taken| _ = taken.fetch_add(1, Ordering::SeqCst));
                    let (next, effects) = reference.take(&step).unwrap();
                    shares.borrow_mut().count(&mut seen, &step, &effects);
                    system.take(&step, &effects).await;
                    system.compare(&next.state).await;
                    reference = next;
                }
                shares.borrow_mut().end(&seen);
            });
            Ok(())
        },
    );
    runtime.block_on(bench.close());
    if let Err(failed) = done {
        panic!("OUTBOX_MODEL_SEED={seed}: {failed}");
    }
    shares.into_inner().check(std::any::type_name::<B>());
}
