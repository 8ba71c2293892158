//! Fencing: every settle writes under the token of its lease, and under no other.

/// The cases of a settle, each by what all settles have in common.
macro_rules! fenced {
    ($settle:ident: $($case:ident: $check:ident),+ $(,)?) => {
        use crate::bench::{Bench, Settle, fencing};

        $(async fn $case<B: Bench>(b: B) {
            fencing::$check(&b, Settle::$settle).await;
        })+

        cases! { $($case),+ }
    };
}

mod ack {
    fenced! {
        Ack:
        the_right_token_acks: right_token,
        a_wrong_token_acks_nothing: wrong_token,
        a_row_given_back_before_is_not_hit: unleased,
        the_old_token_acks_nothing_after_a_reclaim: reclaimed,
        a_row_that_is_gone_is_not_hit: gone,
        an_expired_lease_that_nobody_took_still_acks: expired_alone,
        a_batch_with_lost_leases_answers_each_in_turn: some_lost,
        rows_lost_among_their_neighbours_are_told: lost_among,
        of_two_tokens_for_one_row_only_the_right_one_acks: two_tokens,
        five_hundred_rows_in_any_order_are_one_call: large_batch,
        an_empty_batch_acks_nothing: empty,
    }
}

mod retry {
    fenced! {
        Retry:
        the_right_token_retries: right_token,
        a_wrong_token_retries_nothing: wrong_token,
        a_row_given_back_before_is_not_hit: unleased,
        the_old_token_retries_nothing_after_a_reclaim: reclaimed,
        a_row_that_is_gone_is_not_hit: gone,
        an_expired_lease_that_nobody_took_still_retries: expired_alone,
        a_batch_with_lost_leases_answers_each_in_turn: some_lost,
        rows_lost_among_their_neighbours_are_told: lost_among,
        of_two_tokens_for_one_row_only_the_right_one_retries: two_tokens,
        five_hundred_rows_in_any_order_are_one_call: large_batch,
        an_empty_batch_retries_nothing: empty,
    }
}

mod bury {
    fenced! {
        Bury:
        the_right_token_buries: right_token,
        a_wrong_token_buries_nothing: wrong_token,
        a_row_given_back_before_is_not_hit: unleased,
        the_old_token_buries_nothing_after_a_reclaim: reclaimed,
        a_row_that_is_gone_is_not_hit: gone,
        an_expired_lease_that_nobody_took_still_buries: expired_alone,
        a_batch_with_lost_leases_answers_each_in_turn: some_lost,
        rows_lost_among_their_neighbours_are_told: lost_among,
        of_two_tokens_for_one_row_only_the_right_one_buries: two_tokens,
        five_hundred_rows_in_any_order_are_one_call: large_batch,
        an_empty_batch_buries_nothing: empty,
    }
}

mod release {
    fenced! {
        Release:
        the_right_token_releases: right_token,
        a_wrong_token_releases_nothing: wrong_token,
        a_row_given_back_before_is_not_hit: unleased,
        the_old_token_releases_nothing_after_a_reclaim: reclaimed,
        a_row_that_is_gone_is_not_hit: gone,
        an_expired_lease_that_nobody_took_still_releases: expired_alone,
        a_batch_with_lost_leases_answers_each_in_turn: some_lost,
        rows_lost_among_their_neighbours_are_told: lost_among,
        of_two_tokens_for_one_row_only_the_right_one_releases: two_tokens,
        five_hundred_rows_in_any_order_are_one_call: large_batch,
        an_empty_batch_releases_nothing: empty,
    }
}

mod extend {
    fenced! {
        Extend:
        the_right_token_extends: right_token,
        a_wrong_token_extends_nothing: wrong_token,
        a_row_given_back_before_is_not_hit: unleased,
        the_old_token_extends_nothing_after_a_reclaim: reclaimed,
        a_row_that_is_gone_is_not_hit: gone,
        an_expired_lease_that_nobody_took_still_extends: expired_alone,
        a_batch_with_lost_leases_answers_each_in_turn: some_lost,
        rows_lost_among_their_neighbours_are_told: lost_among,
        of_two_tokens_for_one_row_only_the_right_one_extends: two_tokens,
        five_hundred_rows_in_any_order_are_one_call: large_batch,
        an_empty_batch_extends_nothing: empty,
    }
}
