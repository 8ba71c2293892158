//! Records of runs, and what the properties make of them.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use outbox_tests::backend::unique;
use outbox_tests::server::scratch;

use super::model::record::{BEGUN, MS, Record};
use super::{Property, Verdict, commits, drains, handlers, leases};
use crate::args::Store;
use crate::fleet::Exit;
use crate::history::{History, Run};
use crate::lease::{Lease, ttl};
use crate::sometimes;
use crate::workload::EXIT;
use crate::world::{Done, World};

/// The version of a token says whether its row runs alone.
const ALONE: &str = "00000000-0000-8000-8000-000000000000";

fn judged(history: &mut History, property: Property) -> Vec<String> {
    history.leases = Lease::all(&history.changes, &history.runs);
    let Verdict { tested, broken, .. } = property(history);
    assert!(tested > 0, "it was put to no test");
    broken
}

#[track_caller]
fn is_right(history: &mut History, property: Property) {
    assert_eq!(judged(history, property), Vec::<String>::new());
}

#[track_caller]
fn is_wrong(history: &mut History, property: Property, why: &str) {
    let broken = judged(history, property);
    assert!(broken.len() == 1 && broken[0].contains(why), "{broken:?}");
}

fn exit(app: &str, at: i64, status: i32) -> Exit {
    Exit { at, app: app.into(), status: ExitStatus::from_raw(status) }
}

/// One that is there still.
fn is_left(row: &mut Record) -> &mut History {
    row.history.left.push((7, "k".into()));
    &mut row.history
}

#[test]
fn a_message_is_in_one_place_at_the_end() {
    let vanishes = commits::no_message_vanishes;
    let mut row = Record::of("single");
    is_wrong(&mut row.history, vanishes, "acked 0, cancelled 0, there 0, letters 0");
    is_right(is_left(&mut row), vanishes);
    row.history.letters.push((7, None));
    is_wrong(&mut row.history, vanishes, "there 1, letters 1");
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "ok").delete("w0");
    is_right(&mut row.history, vanishes);
    is_wrong(is_left(&mut row), vanishes, "acked 1, cancelled 0, there 1");
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "fail").delete("w0");
    is_wrong(&mut row.history, vanishes, "acked 0");
}

#[test]
fn a_letter_that_is_gone_or_another_at_the_end_is_a_message_that_vanished() {
    let vanishes = commits::no_message_vanishes;
    let mut row = Record::of("single");
    row.claim("w0", "a").run("w0", "reject").letter("w0").delete("w0");
    row.history.changes[0].body = Some("as published".into());
    is_wrong(&mut row.history, vanishes, "letters 0");
    row.history.letters = vec![(7, Some("as published".into()))];
    is_right(&mut row.history, vanishes);
    row.history.letters.push((7, Some("as published".into())));
    is_wrong(&mut row.history, vanishes, "letters 2");
    row.history.letters = vec![(7, Some("changed since".into()))];
    is_wrong(&mut row.history, vanishes, "as they were: false");
}

#[test]
fn a_cancelled_timer_has_not_vanished() {
    let mut row = Record::of("timers");
    row.delete("p0");
    is_wrong(&mut row.history, commits::no_message_vanishes, "cancelled 0");
    row.history.changes.iter_mut().for_each(|change| change.timer = Some("t".into()));
    is_right(&mut row.history, commits::no_message_vanishes);
}

#[test]
fn a_process_ends_by_a_handler_that_was_to_end_it() {
    const ABORTED: i32 = 6;
    const EXITED: i32 = EXIT << 8;
    let ends = drains::a_worker_ends_only_when_told;
    for (act, ended, other) in
        [("Abort", ABORTED, EXITED), ("Overflow", ABORTED, EXITED), ("Exit", EXITED, ABORTED)]
    {
        let mut row = Record::of("crash");
        row.claim("w0", "a");
        row.history.biz.get_mut("k").unwrap().act = act.into();
        row.history.exits = vec![exit("w0", row.now + 50 * MS, ended)];
        is_wrong(&mut row.history, ends, "w0");
        row.starts("w0");
        is_right(&mut row.history, ends);
        row.history.exits = vec![exit("w0", row.now + 50 * MS, other)];
        is_wrong(&mut row.history, ends, "w0");
        row.history.exits = vec![exit("w1", row.now + 50 * MS, ended)];
        is_wrong(&mut row.history, ends, "w1");
        row.history.exits = vec![exit("w0", row.now - 50 * MS, ended)];
        is_wrong(&mut row.history, ends, "w0");
        row.history.exits = vec![exit("w0", row.now + 50 * MS, ended)];
        row.run("w0", "ok");
        is_wrong(&mut row.history, ends, "w0");
    }
}

#[test]
fn a_start_fails_amid_faults_alone() {
    let (ends, failed) = (drains::a_worker_ends_only_when_told, 1 << 8);
    let mut history = Record::of("single").history;
    history.quiet = (BEGUN + 60_000 * MS, BEGUN + 70_000 * MS);
    history.exits = vec![exit("w0", BEGUN + 30_000 * MS, failed)];
    is_wrong(&mut history, ends, "w0");
    let (from, to) = (BEGUN + 20_000 * MS, BEGUN + 21_000 * MS);
    history.done.push(Done { kind: "table locked", from, to });
    is_right(&mut history, ends);
    for at in [BEGUN + 10_000 * MS, BEGUN + 75_000 * MS] {
        history.exits = vec![exit("w0", at, failed)];
        is_wrong(&mut history, ends, "w0");
    }
}

/// Delivered too often, and once more, alone; judged by the next one who has it.
fn condemned(runs_before: bool, runs_alone: bool) -> Record {
    let mut row = Record::of("crash");
    for token in ["a", "b", "c"] {
        row.claim("w0", token);
        if runs_before {
            row.starts("w0");
        }
        row.after(ttl());
    }
    row.claim("w0", "d").mark("w0", ALONE);
    if runs_alone {
        row.starts("w0");
    }
    row.after(ttl()).claim("w1", "e").letter("w1").delete("w1");
    let letter = row.history.changes.len() - 2;
    row.history.changes[letter].reason = Some("max_deliveries".into());
    for (number, change) in (0..).zip(&mut row.history.changes) {
        change.xid = number;
    }
    row
}

/// Something else that its process wrote while it had the row alone, long after the mark.
fn heard_of(row: Record) -> Record {
    heard_later(row, 800 * MS)
}

fn heard_later(mut row: Record, later: i64) -> Record {
    let mark = row.history.changes.len() - 4;
    let mut other = row.history.changes[mark].clone();
    (other.id, other.at, other.xid) = (8, other.at + later, -1);
    other.stmt += later;
    (other.old.token, other.new.token) = (None, None);
    row.history.changes.insert(mark + 1, other);
    row
}

#[test]
fn a_row_is_judged_for_a_run_when_it_was_alone_and_for_none_before() {
    let guilty = handlers::only_the_guilty_become_letters;
    for before in [false, true] {
        let mut row = heard_of(condemned(before, false));
        is_wrong(&mut row.history, guilty, "is max_deliveries");
        assert_eq!(handlers::judged_unstarted(&row.history), 0);
        is_right(&mut heard_of(condemned(before, true)).history, guilty);
    }
}

#[test]
fn a_row_may_be_judged_unstarted_if_its_process_died_or_was_not_heard_of() {
    let guilty = handlers::only_the_guilty_become_letters;
    for store in [Store::Postgres, Store::Sqlite] {
        let mut row = heard_of(condemned(true, false));
        row.history.store = store;
        is_wrong(&mut row.history, guilty, "is max_deliveries");
        row.history.exits.push(exit("w0", row.now - 100 * MS, 9));
        is_right(&mut row.history, guilty);
        assert_eq!(handlers::judged_unstarted(&row.history), 1);
    }
    is_right(&mut condemned(true, false).history, guilty);
    // It was on its way beside the mark.
    is_right(&mut heard_later(condemned(true, false), 10 * MS).history, guilty);
    let mut row = condemned(true, false);
    row.history.store = Store::Sqlite;
    let (from, to) = (row.now - ttl(), row.now);
    row.history.done.push(Done { kind: "worker killed", from, to });
    is_wrong(&mut row.history, guilty, "is max_deliveries");
    row.history.done.push(Done { kind: "file locked", from, to });
    is_right(&mut row.history, guilty);
}

#[test]
fn a_stopped_thread_begins_a_run_or_a_batch() {
    let run = |id: i64, batch: bool, begun: i64| Run {
        app: "w0".into(),
        id,
        fence: 0,
        key: "k".into(),
        batch,
        plain: false,
        begun,
        ended: None,
        starts: 1,
    };
    let begun = |runs: &[Run]| handlers::begun_by(2, runs.iter()).map(|run| run.id).max();
    let single = [1, 2, 3].map(|id| run(id, false, id));
    assert_eq!(begun(&single), Some(2));
    let batches = [run(1, true, 0), run(2, true, 5), run(3, false, 9), run(4, true, 12)];
    assert_eq!(begun(&batches), Some(3));
    let apart = [1, 2, 3].map(|id| run(id, true, id * MS));
    assert_eq!(begun(&apart), Some(2));
}

#[test]
fn a_lease_that_is_born_old_is_wrong() {
    let begins = leases::a_lease_begins_with_its_claim;
    let mut row = Record::of("single");
    row.claim("w0", "a");
    is_right(&mut row.history, begins);
    row.history.changes[1].new.leased -= 2 * MS;
    is_wrong(&mut row.history, begins, "is not within");
}

#[tokio::test]
async fn a_lease_that_is_born_old_is_wrong_on_a_file_too() {
    let folder = scratch().join(unique("outbox-born-old"));
    std::fs::create_dir_all(&folder).unwrap();
    let world = World::make(Store::Sqlite, folder.clone(), 0).await.unwrap();
    let pool = outbox::sqlite::connect(&world.url).await.unwrap();
    let mut tx = outbox::sqlite::begin(&pool).await.unwrap();
    outbox::Publisher::default().publish(&mut tx, "q", &1).await.unwrap();
    tx.commit().await.unwrap();
    let claim = "UPDATE outbox SET deliveries_count = 1, acquired_token = x'01',
        acquired_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?";
    let begins = leases::a_lease_begins_with_its_claim;
    sqlx::query(claim).bind(0).execute(&pool).await.unwrap();
    is_right(&mut History::load(&world, (0, 0)).await.unwrap(), begins);
    sqlx::query(claim).bind(1_500_000).execute(&pool).await.unwrap();
    let mut history = History::load(&world, (0, 0)).await.unwrap();
    is_wrong(&mut history, begins, "is not within");
    pool.close().await;
    std::fs::remove_dir_all(folder).unwrap();
}

/// What a producer drops it does not wait for, and a timer's key is that of a row long ago.
#[test]
fn a_commit_without_an_answer_is_one_that_was_waited_for() {
    use crate::journal::{Line, UNKNOWN};

    let mut history = Record::of("timers").history;
    for (word, counted) in [("dropped", 0), ("timer", 0), (UNKNOWN, 1)] {
        let words = vec![word.to_owned(), "k".to_owned()];
        history.events.push(Line { at: BEGUN, app: "p0".into(), words });
        let counters = sometimes::counters(&history);
        let counter = counters.iter().find(|it| it.name == "commits without an answer").unwrap();
        assert_eq!(counter.count, counted, "{word}");
    }
}

/// A promise that nobody has written down is none.
#[test]
fn every_property_is_told_of() {
    let guarantees = include_str!("../../../../../docs/guarantees.md");
    let promises = guarantees.split_once("## What is not promised").unwrap().0;
    let words = promises.split(|char: char| !char.is_ascii_alphanumeric());
    let told: std::collections::HashSet<_> = words.collect();
    let mut history = Record::of("single").history;
    for store in [Store::Postgres, Store::Sqlite] {
        history.store = store;
        for Verdict { id, .. } in super::all(&history) {
            assert!(told.contains(id), "{id}");
        }
    }
}
