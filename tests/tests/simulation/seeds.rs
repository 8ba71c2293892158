//! Ten thousand seeds.

use std::any::Any;
use std::hint::black_box;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::handlers::MEANT;
use crate::sometimes::{CEILINGS, Counts, FLOORS, count};
use crate::workload::Ran;
use crate::{checks, trace, workload};

const SEEDS: Range<u64> = 0..10_000;
/// How much all of them may take of the processors, so that a machine that does other things as
/// well does not fail them: so many times as much as a [`measure`], which a slow one takes as much
/// longer for. Two and a half times what they took when this was written.
const LIMIT: f64 = 28_000.0;
/// After so many seeds a thread measures again: a processor is not as fast all the time.
const EACH: u32 = 50;
/// Of the seeds that fail, so many are told in full.
const TOLD: usize = 3;

/// A handler that panics because it is meant to says nothing.
pub fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = take_hook();
        set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<String>().is_none_or(|text| text != MEANT) {
                loud(panic);
            }
        }));
    });
}

/// What became of a seed; what is wrong with it is an error.
fn one(seed: u64, counts: &mut Counts) -> Result<Ran, String> {
    let said = |panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<String>().cloned();
        text.unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap_or(&"a panic").to_string())
    };
    let ran = catch_unwind(AssertUnwindSafe(|| workload::run(seed))).map_err(said)?;
    let (books, mut wrong) = checks::check(&ran);
    count(&books, &ran, counts);
    wrong.dedup();
    if wrong.is_empty() { Ok(ran) } else { Err(wrong.join("\n")) }
}

/// How long this thread has had a processor.
fn worked() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(told.split_whitespace().next().unwrap().parse().unwrap())
}

/// Numbers that are written and read again. The standard library does it, which is compiled in
/// advance: it takes as long in every profile.
fn measure() -> Duration {
    let begun = worked();
    let mut sum = 0.0;
    for n in 1..=20_000_u32 {
        let text = black_box(format!("{:e}", f64::from(n).sqrt()));
        sum += text.parse::<f64>().unwrap();
    }
    black_box(sum);
    worked() - begun
}

/// What the threads had of the processors.
#[derive(Debug, Default)]
struct Work {
    seeds: Duration,
    measures: Duration,
    measured: u32,
}

impl Work {
    /// As so many measures.
    fn of_measures(&self) -> f64 {
        (self.seeds - self.measures).div_duration_f64(self.measures / self.measured)
    }
}

/// Runs seeds on as many threads as there are processors.
fn all(seeds: Range<u64>) -> (Counts, Vec<(u64, String)>, Work) {
    let next = AtomicU64::new(seeds.start);
    let worker = || {
        let (mut counts, mut failed, mut work) = (Counts::new(), Vec::new(), Work::default());
        for turn in 0.. {
            if turn % EACH == 0 {
                work.measures += measure();
                work.measured += 1;
            }
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            if let Err(wrong) = one(seed, &mut counts) {
                failed.push((seed, wrong));
            }
        }
        work.seeds = worked();
        (counts, failed, work)
    };
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let parts: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let (mut counts, mut failed, mut all) = (Counts::new(), Vec::new(), Work::default());
    for (part, wrong, work) in parts {
        part.into_iter().for_each(|(what, times)| *counts.entry(what).or_default() += times);
        failed.extend(wrong);
        all.seeds += work.seeds;
        all.measures += work.measures;
        all.measured += work.measured;
    }
    failed.sort();
    (counts, failed, all)
}

/// From the environment: one seed, or others than ten thousand.
fn asked() -> Option<Range<u64>> {
    let asked = std::env::var("OUTBOX_SEED").ok()?;
    let number = |text: &str| text.parse().expect("OUTBOX_SEED is a number or a range, as 0..100");
    Some(match asked.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&asked)..number(&asked) + 1,
    })
}

#[test]
fn ten_thousand_seeds_keep_every_promise() {
    quiet();
    let asked = asked();
    let seeds = asked.clone().unwrap_or(SEEDS);
    if seeds.end - seeds.start == 1 {
        let ran = workload::run(seeds.start);
        println!("{}", trace::text(&ran.journal));
    }
    let begun = Instant::now();
    let (counts, failed, work) = all(seeds);
    let took = work.of_measures();
    println!("in {:.1?}, with work of {took:.0} measures: {work:.1?}", begun.elapsed());
    for (what, times) in &counts {
        println!("{times:>9} {what}");
    }
    let told: Vec<_> = failed.iter().map(|(seed, why)| format!("seed {seed}:\n{why}")).collect();
    assert!(
        failed.is_empty(),
        "{} seeds fail, the first ones:\n{}\nOUTBOX_SEED={} tells all of it",
        failed.len(),
        told[..told.len().min(TOLD)].join("\n"),
        failed[0].0
    );
    if asked.is_none() {
        for (what, floor) in FLOORS {
            let times = counts.get(what).copied().unwrap_or_default();
            assert!(times >= floor, "{what}: {times} times, and it has to be {floor}");
        }
        for (what, ceiling) in CEILINGS {
            let times = counts.get(what).copied().unwrap_or_default();
            assert!(times <= ceiling, "{what}: {times}, and at most {ceiling}");
        }
        assert!(took < LIMIT, "they took {took:.0} measures, and at most {LIMIT}: {work:.1?}");
    }
}
