//! What the strategies make of any number: a delay within its bounds, or none.

use std::time::Duration;

use outbox::retry::{Constant, Delays, Exponential, FailedAttempt, Linear, RetryStrategy};
use proptest::prelude::*;

/// What the databases can add.
const CEILING: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Of a delay, for what counting in floating point may be wrong by.
const ROUNDING: f64 = 1e-9;

/// Around everything at which numbers change their kind, and in between.
fn number() -> impl Strategy<Value = u64> {
    let edges = [0, 1, 2, 63, 64, 1023, 1024, 1025, 1 << 53, (1 << 53) + 1, u64::MAX - 1, u64::MAX];
    prop_oneof![2 => any::<u64>(), 1 => prop::sample::select(edges.to_vec()), 1 => 0..100_u64]
}

fn duration() -> impl Strategy<Value = Duration> {
    let edges = [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_nanos(999),
        Duration::from_micros(1),
        CEILING - Duration::from_nanos(1),
        CEILING,
        CEILING + Duration::from_nanos(1),
        Duration::MAX,
    ];
    let whole = (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, ns)| Duration::new(s, ns));
    prop_oneof![
        1 => whole,
        2 => (0..100_000_000_000_000_u64).prop_map(Duration::from_nanos),
        1 => prop::sample::select(edges.to_vec()),
    ]
}

/// Those that are no numbers too.
fn factor() -> impl Strategy<Value = f64> {
    let edges = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        -0.0,
        1.0,
        2.0,
        1e300,
    ];
    prop_oneof![
        1 => any::<f64>(),
        1 => prop::sample::select(edges.to_vec()),
        2 => 0.0..3.0_f64,
    ]
}

/// A strategy, the delay that its settings name for that attempt, and its jitter and limit.
struct Case {
    strategy: Box<dyn RetryStrategy>,
    /// `None`: no delay is left. In seconds, perhaps more than there are.
    named: Option<f64>,
    jitter: f64,
    most: Duration,
}

/// Of each kind, with and without limits on single delays.
fn cases(
    attempts: u64,
    times: [Duration; 3],
    [multiplier, jitter]: [f64; 2],
    max_attempts: Option<u64>,
) -> Vec<Case> {
    let [initial, step, most] = times;
    let before = attempts.saturating_sub(1) as f64;
    let seconds = Duration::as_secs_f64;
    let grown = seconds(&initial) * multiplier.powf(before);
    let risen = seconds(&initial) + seconds(&step) * before;
    macro_rules! limited {
        ($strategy:expr) => {{
            let strategy = $strategy.jitter(jitter);
            match max_attempts {
                Some(max) => Box::new(strategy.max_attempts(max)) as Box<dyn RetryStrategy>,
                None => Box::new(strategy),
            }
        }};
    }
    let listed = vec![initial, step, most];
    let at = usize::try_from(attempts.saturating_sub(1)).ok();
    let of_list = at.and_then(|at| listed.get(at)).map(seconds);
    let case =
        |strategy, named, most: Duration| Case { strategy, named, jitter, most: most.min(CEILING) };
    let exponential = Exponential::new(initial).multiplier(multiplier);
    let linear = Linear::new(initial, step);
    vec![
        case(limited!(exponential), Some(grown), CEILING),
        case(limited!(exponential.max_delay(most)), Some(grown), most),
        case(limited!(linear), Some(risen), CEILING),
        case(limited!(linear.max_delay(most)), Some(risen), most),
        case(limited!(Constant::new(initial)), Some(seconds(&initial)), CEILING),
        case(limited!(Delays::new(listed)), of_list, CEILING),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn every_delay_of_every_strategy_lies_within_its_bounds(
        attempts in number(),
        elapsed in duration(),
        times in [duration(), duration(), duration()],
        factors in [factor(), factor()],
        max_attempts in prop::option::of(number()),
    ) {
        let failed = FailedAttempt::new(attempts, elapsed, None);
        for (kind, case) in cases(attempts, times, factors, max_attempts).into_iter().enumerate() {
            let Case { strategy, named, jitter, most } = case;
            let sound = strategy.check().is_ok();
            let delay = strategy.next_delay(&failed);
            let ended = named.is_none() || max_attempts.is_some_and(|max| attempts >= max);
            prop_assert_eq!(delay.is_none(), ended, "{}", kind);
            let Some(delay) = delay else { continue };
            // Whatever the settings are, also those that no app starts with.
            prop_assert!(delay <= most, "{}: {:?} of {:?}", kind, delay, most);
            if !sound {
                continue;
            }
            let (named, limit) = (named.unwrap(), most.as_secs_f64());
            let floor = (named * (1.0 - jitter / 2.0)).min(limit) * (1.0 - ROUNDING);
            let above = named * (1.0 + jitter / 2.0) * (1.0 + ROUNDING) + ROUNDING;
            let delay = delay.as_secs_f64() + ROUNDING;
            prop_assert!(delay >= floor, "{}: {} below {}", kind, delay, floor);
            prop_assert!(delay - ROUNDING <= above, "{}: {} above {}", kind, delay, above);
        }
    }

    /// What is about to come counts too.
    #[test]
    fn no_delay_leads_beyond_the_total(
        attempts in number(),
        elapsed in duration(),
        total in duration(),
        times in [duration(), duration(), duration()],
        jitter in factor(),
    ) {
        let failed = FailedAttempt::new(attempts, elapsed, None);
        let [initial, step, most] = times;
        let strategies: [Box<dyn RetryStrategy>; 4] = [
            Box::new(Exponential::new(initial).jitter(jitter).max_total_delay(total)),
            Box::new(Linear::new(initial, step).jitter(jitter).max_total_delay(total)),
            Box::new(Constant::new(initial).jitter(jitter).max_total_delay(total)),
            Box::new(Delays::new([initial, step, most]).jitter(jitter).max_total_delay(total)),
        ];
        for (kind, strategy) in strategies.iter().enumerate() {
            if let Some(delay) = strategy.next_delay(&failed) {
                prop_assert!(elapsed.saturating_add(delay) <= total, "{}: {:?}", kind, delay);
            }
        }
    }
}
