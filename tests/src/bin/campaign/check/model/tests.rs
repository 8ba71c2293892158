//! Records of runs that are right, and the same with something in them that nobody may do.

use super::record::{BEGUN, MS, Record};
use crate::fleet::Sent;
use crate::history::Op;
use crate::lease::ttl;

/// The version of a token says whether its row runs alone.
const ALONE: &str = "00000000-0000-8000-8000-000000000000";
const AGAIN: &str = "00000000-0000-8000-8000-000000000002";
const NOT_ALONE: &str = "00000000-0000-4000-8000-000000000001";

#[test]
fn a_row_may_be_retried_lost_taken_over_extended_and_acked() {
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "fail").renew("w0").retry("w0", 100 * MS);
    row.after(200 * MS).claim("w1", "b").run("w1", "ok");
    row.after(ttl()).claim("w0", "c").renew("w0").run("w0", "ok").renew("w0").delete("w0");
    row.is_right();
}

/// By a clock of milliseconds: nothing of the row is another than before.
#[test]
fn a_lease_may_be_extended_at_the_time_of_its_claim() {
    let mut row = Record::of("single");
    row.claim("w0", "a").update("w0", |_, _| {}).run("w0", "ok").delete("w0");
    row.is_right();
}

#[test]
fn the_third_failure_is_a_letter() {
    let mut row = Record::of("single");
    for token in ["a", "b"] {
        row.claim("w0", token).run("w0", "panic").retry("w0", 100 * MS).after(200 * MS);
    }
    row.claim("w0", "c").run("w0", "fail").letter("w0").delete("w0");
    row.is_right();
    row.history.changes.retain(|change| change.op != Op::Letter);
    row.is_wrong("0 letters, and 1 in the model");
}

#[test]
fn a_fourth_run_is_wrong() {
    let mut row = Record::of("single");
    for token in ["a", "b", "c"] {
        row.claim("w0", token).run("w0", "fail").retry("w0", 100 * MS).after(200 * MS);
    }
    row.is_wrong("Retry by w0");
}

#[test]
fn a_row_whose_processes_end_runs_alone_and_is_judged_when_that_ends_it_too() {
    let mut row = Record::of("crash");
    for token in ["a", "b", "c", "d"] {
        row.claim("w0", token).after(ttl());
    }
    row.now -= ttl();
    row.mark("w0", ALONE).after(ttl()).claim("w1", "e").letter("w1").delete("w1");
    row.is_right();
}

#[test]
fn a_row_that_runs_alone_for_long_is_joined_by_others() {
    let mut row = Record::of("crash");
    for token in ["a", "b", "c", "d"] {
        row.claim("w0", token).after(ttl());
    }
    row.now -= ttl();
    row.mark("w0", ALONE).run("w0", "ok").renew("w0").mark("w0", NOT_ALONE).delete("w0");
    row.is_right();
}

#[test]
fn a_judgement_without_a_run_alone_is_wrong() {
    let mut row = Record::of("crash");
    for token in ["a", "b", "c", "d"] {
        row.claim("w0", token).after(ttl());
    }
    row.claim("w1", "e").letter("w1").delete("w1");
    row.is_wrong("no word of its handler");
}

#[test]
fn a_row_of_the_first_delivery_that_is_to_run_alone_is_wrong() {
    let mut row = Record::of("crash");
    row.claim("w0", "a").mark("w0", ALONE);
    row.is_wrong("the model has no Mark");
}

#[test]
fn a_drain_gives_back_what_it_drops_and_what_it_has_not_started() {
    let mut row = Record::of("single");
    row.claim("w0", "a").release("w0", 1).claim("w1", "b").release("w1", 0).claim("w0", "c");
    let sent = Sent { at: BEGUN, app: "w1".into(), signal: "TERM" };
    row.is_wrong("nobody told it to end");
    row.history.signals.push(sent);
    row.is_right();
}

/// The statement took longer than that, so that the row was due when it was written down.
#[test]
fn a_row_may_be_put_off_by_little() {
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "snooze").after(20 * MS).update("w0", |row, now| {
        row.due = now + 100 * MS;
        row.deliveries -= 1;
        Record::free(row);
    });
    row.history.changes[2].at += 300 * MS;
    row.is_right();
}

#[test]
fn a_row_without_its_letter_is_given_back_for_a_lease() {
    let kept = |word, delay, counted| {
        let mut row = Record::of("single");
        row.claim("w0", "a").run("w0", word).after(20 * MS).update("w0", |row, now| {
            row.due = now + delay;
            row.deliveries -= counted;
            Record::free(row);
        });
        row
    };
    kept("reject", ttl(), 1).is_right();
    kept("reject", ttl(), 0).is_wrong("due, deliveries, attempts and lease are");
    kept("reject", ttl() / 2, 1).is_wrong("for the time between");
    kept("fail", ttl(), 1).is_wrong("the model has no Keep");
}

#[test]
fn a_row_that_is_condemned_without_its_letter_stays_condemned() {
    let condemned = |token| {
        let mut row = Record::of("crash");
        for token in ["a", "b", "c", "d"] {
            row.claim("w0", token).after(ttl());
        }
        row.now -= ttl();
        row.mark("w0", ALONE).after(ttl()).claim("w1", "e").mark("w1", token).after(ttl());
        row.claim("w0", "f");
        row
    };
    condemned(AGAIN).letter("w0").delete("w0").is_right();
    condemned(AGAIN).run("w0", "ok").delete("w0").is_wrong("0 letters, and 1 in the model");
    condemned(NOT_ALONE).letter("w0").delete("w0").is_wrong("the model has no Join");
}

#[test]
fn a_run_that_is_given_back_as_unstarted_is_wrong() {
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "ok").release("w0", 1);
    row.is_wrong("its run began");
}

#[test]
fn a_transaction_that_does_not_commit_puts_its_row_off() {
    let mut row = Record::of("tx");
    row.claim("w0", "a").run("w0", "ok").after(20 * MS).update("w0", |row, now| {
        row.due = now + 800 * MS;
        row.deliveries -= 1;
        Record::free(row);
    });
    row.is_right();
    row.queue = "single";
    row.history.changes.iter_mut().for_each(|change| change.queue = "single".into());
    row.is_wrong("for the time between");
}

#[test]
fn a_delete_under_a_foreign_token_is_wrong() {
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "ok").after(ttl()).claim("w1", "b").delete("w0");
    row.is_wrong("Delete by w0: in the model it stays");
}

#[test]
fn a_retry_under_a_foreign_token_is_wrong() {
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "fail").after(ttl()).claim("w1", "b").retry("w0", 100 * MS);
    row.is_wrong("Retry by w0: due, deliveries, attempts and lease are");
}

#[test]
fn a_write_of_somebody_who_never_had_the_row_is_wrong() {
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "ok").delete("w2");
    row.is_wrong("it has no delivery of it");
}

#[test]
fn a_claim_over_a_valid_lease_is_wrong() {
    let mut row = Record::of("single");
    row.claim("w0", "a").after(ttl() - 21 * MS).claim("w1", "b");
    row.is_wrong("the model has no Claim");
}

#[test]
fn a_claim_before_it_is_due_is_wrong() {
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "fail").retry("w0", 100 * MS).claim("w0", "b");
    row.is_wrong("the model has no Claim");
}

#[test]
fn a_claim_that_is_not_counted_once_is_wrong() {
    for counted in [0, 2] {
        let mut row = Record::of("single");
        row.after(MS).update("w0", |row, now| {
            row.token = Some("a".into());
            row.leased = now;
            row.deliveries += counted;
        });
        row.is_wrong("Claim by w0: due, deliveries, attempts and lease are");
    }
}

#[test]
fn a_token_that_is_used_twice_is_wrong() {
    let mut row = Record::of("single");
    row.claim("w0", "a").after(ttl()).claim("w0", "a");
    row.is_wrong("is not fresh");
}

#[test]
fn a_retry_that_is_early_or_of_no_failure_is_wrong() {
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "fail").retry("w0", 90 * MS);
    row.is_wrong("for the time between");
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "ok").retry("w0", 100 * MS);
    row.is_wrong("Retry by w0: the model has no such row");
    let mut row = Record::of("single");
    row.claim("w0", "a").retry("w0", 100 * MS);
    row.is_wrong("no word of its handler");
}

#[test]
fn a_change_that_nobody_wrote_down_is_wrong() {
    let mut row = Record::of("single");
    row.row.attempts = 1;
    row.claim("w0", "a");
    row.is_wrong("before it, due, deliveries, attempts and lease are");
}

#[test]
fn two_rows_of_one_timer_are_wrong_and_one_after_the_other_is_not() {
    let mut row = Record::of("timers");
    row.history.changes[0].timer = Some("t".into());
    let mut other = row.history.changes[0].clone();
    other.id = 8;
    row.history.changes.push(other);
    row.is_wrong("row 8: Insert by p0: the model has no such row");
    let mut cancelled = row.history.changes[0].clone();
    (cancelled.op, cancelled.old) = (Op::Delete, cancelled.new.clone());
    row.history.changes.insert(1, cancelled);
    row.is_right();
}
