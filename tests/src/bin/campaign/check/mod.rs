//! The properties: each a fn that goes through all that happened.

mod bounds;
mod commits;
mod counts;
mod drains;
mod handlers;
mod leases;
mod letters;
mod model;
mod repeats;
mod results;
#[cfg(test)]
mod tests;
mod timers;
mod times;

use crate::args::Store;
use crate::history::History;
pub use handlers::judged_unstarted;
pub use repeats::after_ends;

/// What was found of a property.
pub struct Verdict {
    pub id: &'static str,
    pub promise: &'static str,
    /// How often it was put to the test.
    pub tested: usize,
    pub broken: Vec<String>,
}

impl Verdict {
    fn of(id: &'static str, promise: &'static str) -> Self {
        Self { id, promise, tested: 0, broken: Vec::new() }
    }

    fn test(&mut self, holds: bool, what: impl FnOnce() -> String) {
        self.tested += 1;
        if !holds {
            self.broken.push(what());
        }
    }
}

type Property = fn(&History) -> Verdict;

const PROPERTIES: &[Property] = &[
    commits::a_message_is_there_with_its_data,
    commits::no_message_without_its_data,
    commits::no_message_vanishes,
    letters::a_row_goes_by_its_handlers_word,
    letters::a_letter_and_its_row_are_one_transaction,
    letters::one_letter_for_a_terminal_failure,
    letters::a_letter_is_a_copy,
    leases::no_claim_over_a_lease,
    leases::a_lease_begins_with_its_claim,
    leases::a_token_is_of_one_claim,
    leases::a_free_row_is_not_settled,
    handlers::a_claim_starts_one_run,
    handlers::an_attempt_is_a_failed_run,
    handlers::no_run_starts_after_its_lease,
    handlers::nothing_is_settled_before_its_run_ends,
    handlers::only_the_guilty_become_letters,
    counts::counts_go_up_by_one,
    counts::attempts_are_as_many_as_allowed,
    times::nothing_is_claimed_before_it_is_due,
    times::a_delay_is_never_shorter,
    timers::a_timer_is_there_once,
    timers::a_cancelled_timer_never_starts,
    results::a_handlers_writes_commit_with_its_ack,
    results::a_returned_message_commits_with_its_ack,
    drains::a_drain_leaves_nothing,
    drains::a_worker_ends_only_when_told,
    drains::everything_is_handled_soon,
    bounds::a_worker_stays_small,
    model::every_change_is_a_step_of_the_model,
];

/// Those that the other database cannot be asked for.
fn of_store(store: Store) -> Property {
    match store {
        // Sessions of SQLite have no names; what a stranger writes shows in D1, H2 and H4.
        Store::Postgres => leases::only_the_holder_writes,
        Store::Sqlite => drains::the_file_is_sound,
    }
}

pub fn all(history: &History) -> Vec<Verdict> {
    let own = of_store(history.store);
    PROPERTIES.iter().chain([&own]).map(|property| property(history)).collect()
}
