//! Fencing: every settle writes under the token of its lease, and under no other.

use crate::bench::{Bench, Settle, fencing};

mod ack {
    use super::*;

    async fn the_right_token_acks<B: Bench>(b: B) {
        fencing::right_token(&b, Settle::Ack).await;
    }

    async fn a_wrong_token_acks_nothing<B: Bench>(b: B) {
        fencing::wrong_token(&b, Settle::Ack).await;
    }

    async fn a_row_given_back_before_is_not_hit<B: Bench>(b: B) {
        fencing::unleased(&b, Settle::Ack).await;
    }

    async fn the_old_token_acks_nothing_after_a_reclaim<B: Bench>(b: B) {
        fencing::reclaimed(&b, Settle::Ack).await;
    }

    async fn a_row_that_is_gone_is_not_hit<B: Bench>(b: B) {
        fencing::gone(&b, Settle::Ack).await;
    }

    async fn an_expired_lease_that_nobody_took_still_acks<B: Bench>(b: B) {
        fencing::expired_alone(&b, Settle::Ack).await;
    }

    async fn a_batch_with_lost_leases_answers_each_in_turn<B: Bench>(b: B) {
        fencing::some_lost(&b, Settle::Ack).await;
    }

    async fn rows_lost_among_their_neighbours_are_told<B: Bench>(b: B) {
        fencing::lost_among(&b, Settle::Ack).await;
    }

    async fn of_two_tokens_for_one_row_only_the_right_one_acks<B: Bench>(b: B) {
        fencing::two_tokens(&b, Settle::Ack).await;
    }

    async fn five_hundred_rows_in_any_order_are_one_call<B: Bench>(b: B) {
        fencing::large_batch(&b, Settle::Ack).await;
    }

    async fn an_empty_batch_acks_nothing<B: Bench>(b: B) {
        fencing::empty(&b, Settle::Ack).await;
    }

    cases! {
        the_right_token_acks,
        a_wrong_token_acks_nothing,
        a_row_given_back_before_is_not_hit,
        the_old_token_acks_nothing_after_a_reclaim,
        a_row_that_is_gone_is_not_hit,
        an_expired_lease_that_nobody_took_still_acks,
        a_batch_with_lost_leases_answers_each_in_turn,
        rows_lost_among_their_neighbours_are_told,
        of_two_tokens_for_one_row_only_the_right_one_acks,
        five_hundred_rows_in_any_order_are_one_call,
        an_empty_batch_acks_nothing,
    }
}

mod retry {
    use super::*;

    async fn the_right_token_retries<B: Bench>(b: B) {
        fencing::right_token(&b, Settle::Retry).await;
    }

    async fn a_wrong_token_retries_nothing<B: Bench>(b: B) {
        fencing::wrong_token(&b, Settle::Retry).await;
    }

    async fn a_row_given_back_before_is_not_hit<B: Bench>(b: B) {
        fencing::unleased(&b, Settle::Retry).await;
    }

    async fn the_old_token_retries_nothing_after_a_reclaim<B: Bench>(b: B) {
        fencing::reclaimed(&b, Settle::Retry).await;
    }

    async fn a_row_that_is_gone_is_not_hit<B: Bench>(b: B) {
        fencing::gone(&b, Settle::Retry).await;
    }

    async fn an_expired_lease_that_nobody_took_still_retries<B: Bench>(b: B) {
        fencing::expired_alone(&b, Settle::Retry).await;
    }

    async fn a_batch_with_lost_leases_answers_each_in_turn<B: Bench>(b: B) {
        fencing::some_lost(&b, Settle::Retry).await;
    }

    async fn rows_lost_among_their_neighbours_are_told<B: Bench>(b: B) {
        fencing::lost_among(&b, Settle::Retry).await;
    }

    async fn of_two_tokens_for_one_row_only_the_right_one_retries<B: Bench>(b: B) {
        fencing::two_tokens(&b, Settle::Retry).await;
    }

    async fn five_hundred_rows_in_any_order_are_one_call<B: Bench>(b: B) {
        fencing::large_batch(&b, Settle::Retry).await;
    }

    async fn an_empty_batch_retries_nothing<B: Bench>(b: B) {
        fencing::empty(&b, Settle::Retry).await;
    }

    cases! {
        the_right_token_retries,
        a_wrong_token_retries_nothing,
        a_row_given_back_before_is_not_hit,
        the_old_token_retries_nothing_after_a_reclaim,
        a_row_that_is_gone_is_not_hit,
        an_expired_lease_that_nobody_took_still_retries,
        a_batch_with_lost_leases_answers_each_in_turn,
        rows_lost_among_their_neighbours_are_told,
        of_two_tokens_for_one_row_only_the_right_one_retries,
        five_hundred_rows_in_any_order_are_one_call,
        an_empty_batch_retries_nothing,
    }
}

mod bury {
    use super::*;

    async fn the_right_token_buries<B: Bench>(b: B) {
        fencing::right_token(&b, Settle::Bury).await;
    }

    async fn a_wrong_token_buries_nothing<B: Bench>(b: B) {
        fencing::wrong_token(&b, Settle::Bury).await;
    }

    async fn a_row_given_back_before_is_not_hit<B: Bench>(b: B) {
        fencing::unleased(&b, Settle::Bury).await;
    }

    async fn the_old_token_buries_nothing_after_a_reclaim<B: Bench>(b: B) {
        fencing::reclaimed(&b, Settle::Bury).await;
    }

    async fn a_row_that_is_gone_is_not_hit<B: Bench>(b: B) {
        fencing::gone(&b, Settle::Bury).await;
    }

    async fn an_expired_lease_that_nobody_took_still_buries<B: Bench>(b: B) {
        fencing::expired_alone(&b, Settle::Bury).await;
    }

    async fn a_batch_with_lost_leases_answers_each_in_turn<B: Bench>(b: B) {
        fencing::some_lost(&b, Settle::Bury).await;
    }

    async fn rows_lost_among_their_neighbours_are_told<B: Bench>(b: B) {
        fencing::lost_among(&b, Settle::Bury).await;
    }

    async fn of_two_tokens_for_one_row_only_the_right_one_buries<B: Bench>(b: B) {
        fencing::two_tokens(&b, Settle::Bury).await;
    }

    async fn five_hundred_rows_in_any_order_are_one_call<B: Bench>(b: B) {
        fencing::large_batch(&b, Settle::Bury).await;
    }

    async fn an_empty_batch_buries_nothing<B: Bench>(b: B) {
        fencing::empty(&b, Settle::Bury).await;
    }

    cases! {
        the_right_token_buries,
        a_wrong_token_buries_nothing,
        a_row_given_back_before_is_not_hit,
        the_old_token_buries_nothing_after_a_reclaim,
        a_row_that_is_gone_is_not_hit,
        an_expired_lease_that_nobody_took_still_buries,
        a_batch_with_lost_leases_answers_each_in_turn,
        rows_lost_among_their_neighbours_are_told,
        of_two_tokens_for_one_row_only_the_right_one_buries,
        five_hundred_rows_in_any_order_are_one_call,
        an_empty_batch_buries_nothing,
    }
}

mod release {
    use super::*;

    async fn the_right_token_releases<B: Bench>(b: B) {
        fencing::right_token(&b, Settle::Release).await;
    }

    async fn a_wrong_token_releases_nothing<B: Bench>(b: B) {
        fencing::wrong_token(&b, Settle::Release).await;
    }

    async fn a_row_given_back_before_is_not_hit<B: Bench>(b: B) {
        fencing::unleased(&b, Settle::Release).await;
    }

    async fn the_old_token_releases_nothing_after_a_reclaim<B: Bench>(b: B) {
        fencing::reclaimed(&b, Settle::Release).await;
    }

    async fn a_row_that_is_gone_is_not_hit<B: Bench>(b: B) {
        fencing::gone(&b, Settle::Release).await;
    }

    async fn an_expired_lease_that_nobody_took_still_releases<B: Bench>(b: B) {
        fencing::expired_alone(&b, Settle::Release).await;
    }

    async fn a_batch_with_lost_leases_answers_each_in_turn<B: Bench>(b: B) {
        fencing::some_lost(&b, Settle::Release).await;
    }

    async fn rows_lost_among_their_neighbours_are_told<B: Bench>(b: B) {
        fencing::lost_among(&b, Settle::Release).await;
    }

    async fn of_two_tokens_for_one_row_only_the_right_one_releases<B: Bench>(b: B) {
        fencing::two_tokens(&b, Settle::Release).await;
    }

    async fn five_hundred_rows_in_any_order_are_one_call<B: Bench>(b: B) {
        fencing::large_batch(&b, Settle::Release).await;
    }

    async fn an_empty_batch_releases_nothing<B: Bench>(b: B) {
        fencing::empty(&b, Settle::Release).await;
    }

    cases! {
        the_right_token_releases,
        a_wrong_token_releases_nothing,
        a_row_given_back_before_is_not_hit,
        the_old_token_releases_nothing_after_a_reclaim,
        a_row_that_is_gone_is_not_hit,
        an_expired_lease_that_nobody_took_still_releases,
        a_batch_with_lost_leases_answers_each_in_turn,
        rows_lost_among_their_neighbours_are_told,
        of_two_tokens_for_one_row_only_the_right_one_releases,
        five_hundred_rows_in_any_order_are_one_call,
        an_empty_batch_releases_nothing,
    }
}

mod extend {
    use super::*;

    async fn the_right_token_extends<B: Bench>(b: B) {
        fencing::right_token(&b, Settle::Extend).await;
    }

    async fn a_wrong_token_extends_nothing<B: Bench>(b: B) {
        fencing::wrong_token(&b, Settle::Extend).await;
    }

    async fn a_row_given_back_before_is_not_hit<B: Bench>(b: B) {
        fencing::unleased(&b, Settle::Extend).await;
    }

    async fn the_old_token_extends_nothing_after_a_reclaim<B: Bench>(b: B) {
        fencing::reclaimed(&b, Settle::Extend).await;
    }

    async fn a_row_that_is_gone_is_not_hit<B: Bench>(b: B) {
        fencing::gone(&b, Settle::Extend).await;
    }

    async fn an_expired_lease_that_nobody_took_still_extends<B: Bench>(b: B) {
        fencing::expired_alone(&b, Settle::Extend).await;
    }

    async fn a_batch_with_lost_leases_answers_each_in_turn<B: Bench>(b: B) {
        fencing::some_lost(&b, Settle::Extend).await;
    }

    async fn rows_lost_among_their_neighbours_are_told<B: Bench>(b: B) {
        fencing::lost_among(&b, Settle::Extend).await;
    }

    async fn of_two_tokens_for_one_row_only_the_right_one_extends<B: Bench>(b: B) {
        fencing::two_tokens(&b, Settle::Extend).await;
    }

    async fn five_hundred_rows_in_any_order_are_one_call<B: Bench>(b: B) {
        fencing::large_batch(&b, Settle::Extend).await;
    }

    async fn an_empty_batch_extends_nothing<B: Bench>(b: B) {
        fencing::empty(&b, Settle::Extend).await;
    }

    cases! {
        the_right_token_extends,
        a_wrong_token_extends_nothing,
        a_row_given_back_before_is_not_hit,
        the_old_token_extends_nothing_after_a_reclaim,
        a_row_that_is_gone_is_not_hit,
        an_expired_lease_that_nobody_took_still_extends,
        a_batch_with_lost_leases_answers_each_in_turn,
        rows_lost_among_their_neighbours_are_told,
        of_two_tokens_for_one_row_only_the_right_one_extends,
        five_hundred_rows_in_any_order_are_one_call,
        an_empty_batch_extends_nothing,
    }
}
