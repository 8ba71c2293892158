//! A small state machine of a message's way: published, claimed, started, settled,
//! extended, expired, crashed, released, cancelled, replayed.
//!
//! It is checked in all its states, the stores follow it step by step, and what a server
//! wrote down of a real run is led through it: the same rules each time.
//!
//! What the statements see (rows, tokens, times, counts) and what is true (which claim
//! a lease is of, which handler ran) stand apart in a [`State`]. [`Rules::step`] is what
//! the system does; [`judge()`] looks only at what lay there before and after, and says
//! which promises that broke. A [`Mutant`] is a mistake in the rules, never in the judge.
//!
//! Ids of properties are those of the reliability notes: P1, M1, D1 and so on.

mod action;
mod judge;
mod mutant;
mod number;
mod property;
mod rules;
mod scenario;
mod settle;
mod state;

pub use action::{Action, Before, Outcome};
pub use judge::judge;
pub use mutant::Mutant;
pub use number::{Number, Tick};
pub use property::{Broken, Property};
pub use rules::{Rules, Settlement};
pub use scenario::Scenario;
pub use state::{Case, Fate, Lease, Message, Phase, Row, Slot, State, Truth, Verdict};
