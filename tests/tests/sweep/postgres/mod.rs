//! A flow is run once for every message that it exchanges with PostgreSQL and every way
//! in which that message can fail.

mod calls;
mod deliveries;
mod fault;
mod late_claim;
mod notes;
mod proxy;
mod run;
mod stage;
mod what;
mod work;

/// Cases of all flows, at least.
pub fn floor() -> usize {
    calls::floor() + deliveries::floor()
}
