//! Letters are put back, each once, and those that cannot be stay.

use std::collections::HashSet;

use outbox::dlq::{Filter, Kept, Replay, Replayed, Status};
use outbox_tests::db::Db;
use outbox_tests::letters::{ago, id_of};
use outbox_tests::on_both;

use super::{letters, plant};

on_both!(
    a_replay_puts_messages_back_as_if_they_were_new,
    the_oldest_go_first_and_not_more_than_the_limit,
    a_live_timer_keeps_its_letter_and_says_so,
    a_letter_that_is_named_twice_is_one,
    named_letters_each_get_an_answer,
    a_named_letter_that_the_filter_leaves_out_is_not_told_as_one_that_is_not_there,
    letters_that_somebody_has_locked_are_not_passed_over_in_silence,
    two_replays_at_once_put_each_letter_back_once,
    a_replay_may_change_the_payload_and_the_queue,
    options_that_make_no_sense_are_refused_at_once,
    broken_headers_do_not_keep_a_letter,
    large_filters_go_in_batches,
    letters_that_fail_while_it_runs_are_left_alone,
    large_letters_go_back_a_few_at_a_time,
    a_rate_is_kept,
    at_a_rate_nobody_waits_behind_the_last_letter,
    what_a_stall_held_back_does_not_go_out_all_at_once,
);

async fn told(db: &Db, filter: &Filter, how: &Replay) -> Vec<Replayed> {
    let mut told = Vec::new();
    letters(db).replay_with(filter, how, |batch| told.extend_from_slice(batch)).await.unwrap();
    told
}

async fn a_replay_puts_messages_back_as_if_they_were_new(db: &Db) {
    plant(db, "a", 2).await;
    let told = told(db, &Filter::new().queue("a"), &Replay::new()).await;
    assert_eq!(told.len(), 2);
    let fresh = "SELECT count(*) FROM outbox WHERE attempts_count = 0 AND deliveries_count = 0 \
        AND first_attempt_at IS NULL AND last_attempt_at IS NULL AND acquired_token IS NULL \
        AND queue = 'a'";
    assert_eq!(db.int(fresh).await, 2);
    let due = if db.is_postgres() {
        "SELECT count(*) FROM outbox WHERE next_attempt_at <= clock_timestamp() \
            AND created_at > clock_timestamp() - interval '1 minute'"
    } else {
        "SELECT count(*) FROM outbox WHERE next_attempt_at <= unixepoch('subsec') * 1000000 \
            AND created_at > unixepoch('subsec') * 1000000 - 60000000"
    };
    assert_eq!(db.int(due).await, 2);
    for Replayed { letter, row } in told {
        let opened = letters(db).show(letter).await.unwrap().unwrap();
        assert_eq!(opened.letter.status, Status::Resolved);
        assert_eq!(opened.letter.replayed_id, Some(row.unwrap()));
        assert!(opened.letter.resolved_at >= Some(opened.letter.failed_at));
        let n = opened.letter.original_id;
        let payload = if db.is_postgres() {
            "convert_from(payload, 'UTF8')"
        } else {
            "CAST(payload AS TEXT)"
        };
        let same = format!("SELECT {payload} FROM outbox WHERE id = {}", row.unwrap());
        assert_eq!(db.texts(same).await, [n.to_string()]);
    }
}

async fn the_oldest_go_first_and_not_more_than_the_limit(db: &Db) {
    plant(db, "a", 10).await;
    let report = letters(db).replay(&Filter::new(), &Replay::new().limit(4)).await.unwrap();
    assert_eq!((report.replayed, report.kept), (4, 0));
    let gone = "SELECT CAST(original_id AS text) FROM outbox_dlq WHERE status = 'resolved' ORDER BY original_id";
    assert_eq!(db.texts(gone).await, ["1", "2", "3", "4"]);
    // Their rows are in that order too.
    let order = "SELECT count(*) FROM outbox_dlq AS a JOIN outbox_dlq AS b \
        ON a.original_id < b.original_id AND a.replayed_id > b.replayed_id";
    assert_eq!(db.int(order).await, 0);
}

async fn a_live_timer_keeps_its_letter_and_says_so(db: &Db) {
    plant(db, "a", 4).await;
    db.exec("UPDATE outbox_dlq SET timer_id = 'live' WHERE original_id = 1").await;
    db.exec("UPDATE outbox_dlq SET timer_id = 'twice' WHERE original_id IN (2, 3)").await;
    db.send(outbox::Outgoing::new("a", &0).timer_id("live")).await;
    let told = told(db, &Filter::new(), &Replay::new()).await;
    let by = async |n| {
        let id = id_of(db, n).await;
        told.iter().find(|one| one.letter == id).unwrap().row
    };
    assert_eq!(by(1).await, Err(Kept::TimerIsLive));
    assert!(by(2).await.is_ok() && by(4).await.is_ok());
    assert_eq!(by(3).await, Err(Kept::TimerIsLive));
    let open = "SELECT count(*) FROM outbox_dlq WHERE status = 'failed' AND replayed_id IS NULL";
    assert_eq!((db.int(open).await, db.rows().await), (2, 3));
    assert_eq!(db.int("SELECT count(*) FROM outbox WHERE timer_id = 'twice'").await, 1);
    // Nothing changes while they live, and the rest goes when they are gone.
    let report = letters(db).replay(&Filter::new(), &Replay::new()).await.unwrap();
    assert_eq!((report.replayed, report.kept), (0, 2));
    db.exec("DELETE FROM outbox").await;
    let report = letters(db).replay(&Filter::new(), &Replay::new()).await.unwrap();
    assert_eq!((report.replayed, report.kept), (2, 0));
}

async fn a_letter_that_is_named_twice_is_one(db: &Db) {
    plant(db, "a", 1).await;
    let id = id_of(db, 1).await;
    let twice = Filter::new().ids([id, id]);
    let report = letters(db).replay(&twice, &Replay::new().payload("8")).await.unwrap();
    assert_eq!((report.replayed, report.kept), (1, 0));
    let report = letters(db).replay(&twice, &Replay::new()).await.unwrap();
    assert_eq!((report.replayed, report.kept), (0, 1));
}

async fn named_letters_each_get_an_answer(db: &Db) {
    plant(db, "a", 4).await;
    let mut ids = Vec::new();
    for n in 1..=4 {
        ids.push(id_of(db, n).await);
    }
    let letters = letters(db);
    letters.ignore(&Filter::new().ids([ids[1]]), None).await.unwrap();
    letters.resolve(&Filter::new().ids([ids[2]]), None).await.unwrap();
    let lock = if db.is_postgres() {
        let mut tx = db.pg().begin().await.unwrap();
        let hold = "SELECT id FROM outbox_dlq WHERE original_id = 4 FOR UPDATE";
        sqlx::query(hold).execute(&mut *tx).await.unwrap();
        Some(tx)
    } else {
        None
    };
    let named = Filter::new().ids(ids.iter().copied().chain([4711]));
    let told = told(db, &named, &Replay::new()).await;
    let of = |id: i64| told.iter().find(|one| one.letter == id).unwrap().row;
    assert!(of(ids[0]).is_ok());
    assert_eq!(of(ids[1]), Err(Kept::Done(Status::Ignored)));
    assert_eq!(of(ids[2]), Err(Kept::Done(Status::Resolved)));
    assert_eq!(of(4711), Err(Kept::Unknown));
    match lock {
        Some(_) => assert_eq!(of(ids[3]), Err(Kept::Locked)),
        None => assert!(of(ids[3]).is_ok()),
    }
    assert_eq!(told.len(), 5);
}

async fn a_named_letter_that_the_filter_leaves_out_is_not_told_as_one_that_is_not_there(db: &Db) {
    plant(db, "a", 2).await;
    plant(db, "b", 1).await;
    let ids = async |queue: &str| {
        let ids = format!("SELECT CAST(id AS text) FROM outbox_dlq WHERE queue = '{queue}'");
        db.texts(ids).await.into_iter().map(|id| id.parse::<i64>().unwrap()).collect::<Vec<_>>()
    };
    let (inside, outside) = (ids("a").await, ids("b").await[0]);
    let named = inside.iter().copied().chain([outside, 4711]);
    let told = told(db, &Filter::new().ids(named).queue("a"), &Replay::new()).await;
    let of = |id: i64| told.iter().find(|one| one.letter == id).unwrap().row;
    assert!(inside.iter().all(|id| of(*id).is_ok()), "{told:?}");
    assert_eq!((of(outside), of(4711)), (Err(Kept::LeftOut), Err(Kept::Unknown)));
    // Nobody has it locked.
    let ignored = Filter::new().ids([outside]).status(Status::Ignored);
    let left = self::told(db, &ignored, &Replay::new()).await;
    assert_eq!(left.iter().map(|one| one.row).collect::<Vec<_>>(), [Err(Kept::LeftOut)]);
    assert_eq!(told.len(), 4);
}

async fn letters_that_somebody_has_locked_are_not_passed_over_in_silence(db: &Db) {
    plant(db, "a", 5).await;
    let letters = letters(db);
    let all = Filter::new().queue("a");
    if db.is_postgres() {
        let mut tx = db.pg().begin().await.unwrap();
        let hold = "SELECT id FROM outbox_dlq WHERE original_id IN (2, 5) FOR UPDATE";
        sqlx::query(hold).execute(&mut *tx).await.unwrap();
        let few = letters.replay(&all, &Replay::new().limit(1)).await.unwrap();
        assert_eq!((few.replayed, few.kept, few.locked), (1, 0, 0), "nobody asked for them");
        // As many as there are: then they are missed.
        let all_four = Replay::new().limit(4);
        let report = letters.replay(&all, &all_four).await.unwrap();
        assert_eq!((report.replayed, report.kept, report.locked), (2, 2, 2));
        let report = letters.replay(&all, &Replay::new()).await.unwrap();
        assert_eq!((report.replayed, report.kept, report.locked), (0, 2, 2));
        tx.rollback().await.unwrap();
    }
    let report = letters.replay(&all, &Replay::new()).await.unwrap();
    let left = if db.is_postgres() { 2 } else { 5 };
    assert_eq!((report.replayed, report.kept, report.locked), (left, 0, 0));
}

async fn two_replays_at_once_put_each_letter_back_once(db: &Db) {
    plant(db, "a", 3000).await;
    let run = || {
        let letters = letters(db);
        tokio::spawn(async move { letters.replay(&Filter::new(), &Replay::new()).await.unwrap() })
    };
    let (one, two) = (run(), run());
    let replayed = one.await.unwrap().replayed + two.await.unwrap().replayed;
    assert_eq!((replayed, db.rows().await), (3000, 3000));
    let letters = "SELECT count(DISTINCT replayed_id) FROM outbox_dlq WHERE status = 'resolved'";
    assert_eq!(db.int(letters).await, 3000);
}

async fn a_replay_may_change_the_payload_and_the_queue(db: &Db) {
    plant(db, "a", 2).await;
    let id = id_of(db, 1).await;
    let edited = Replay::new().payload(&b"\x00edited"[..]).to_queue("b");
    letters(db).replay(&Filter::new().ids([id]), &edited).await.unwrap();
    let bytes = if db.is_postgres() { "'\\x00656469746564'" } else { "x'00656469746564'" };
    let row = format!("SELECT count(*) FROM outbox WHERE queue = 'b' AND payload = {bytes}");
    assert_eq!(db.int(row).await, 1);
    // The letter tells what failed.
    assert_eq!(&letters(db).show(id).await.unwrap().unwrap().payload[..], b"1");
}

async fn options_that_make_no_sense_are_refused_at_once(db: &Db) {
    plant(db, "a", 2).await;
    let how = Replay::new()
        .payload(&b"x"[..])
        .to_queue("")
        .per_second(0.0)
        .canary(outbox::dlq::Canary::new(0, 2.0));
    let large = Replay::new().payload(vec![0; (16 << 20) + 1]);
    let large = letters(db).replay(&Filter::new().ids([1]), &large).await.unwrap_err().to_string();
    assert!(large.contains("16777216"), "{large}");
    let told = letters(db).replay(&Filter::new(), &how).await.unwrap_err().to_string();
    for wrong in ["one letter", "queue name is empty", "above 0", "at least one"] {
        assert!(told.contains(wrong), "{told}");
    }
    assert_eq!(db.rows().await, 0);
}

async fn broken_headers_do_not_keep_a_letter(db: &Db) {
    plant(db, "a", 4).await;
    let all = [
        "NULL",
        "'[1]'",
        "'\"text\"'",
        "'{\"outbox-replays\": [\"x\"], \"outbox-original-id\": \"y\"}'",
    ];
    for (n, headers) in (1..).zip(all) {
        db.exec(format!("UPDATE outbox_dlq SET headers = {headers} WHERE original_id = {n}")).await;
    }
    if !db.is_postgres() {
        db.exec("UPDATE outbox_dlq SET headers = '{broken' WHERE original_id = 2").await;
    }
    let report = letters(db).replay(&Filter::new(), &Replay::new()).await.unwrap();
    assert_eq!(report.replayed, 4);
    let counted = if db.is_postgres() {
        "SELECT count(*) FROM outbox WHERE headers ->> 'outbox-replays' = '1'"
    } else {
        "SELECT count(*) FROM outbox WHERE typeof(headers ->> 'outbox-replays') = 'text' \
            AND headers ->> 'outbox-replays' = '1'"
    };
    assert_eq!(db.int(counted).await, 4);
}

async fn large_filters_go_in_batches(db: &Db) {
    plant(db, "a", 1250).await;
    db.exec("UPDATE outbox_dlq SET timer_id = 't' WHERE original_id <= 600").await;
    let mut batches = Vec::new();
    let report = letters(db)
        .replay_with(&Filter::new(), &Replay::new(), |batch| batches.push(batch.len()))
        .await
        .unwrap();
    assert_eq!(batches, [500, 500, 250]);
    assert_eq!((report.replayed, report.kept), (651, 599));
    let rows: HashSet<String> =
        db.texts("SELECT CAST(id AS text) FROM outbox").await.into_iter().collect();
    assert_eq!(rows.len(), 651);
}

async fn letters_that_fail_while_it_runs_are_left_alone(db: &Db) {
    plant(db, "a", 600).await;
    let mut batches = 0;
    let late = ago(db, -30);
    // What a handler that fails at once would do, between two batches.
    let write = format!(
        "UPDATE outbox_dlq SET status = 'failed', failed_at = {late} WHERE status = 'resolved'"
    );
    let report = letters(db)
        .replay_with(&Filter::new(), &Replay::new(), |_| {
            batches += 1;
            assert!(batches < 10, "it replays what it has just replayed");
            let fail_again = db.exec(write.clone());
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(fail_again);
            });
        })
        .await
        .unwrap();
    assert_eq!((report.replayed, batches), (600, 2));
}

async fn a_rate_is_kept(db: &Db) {
    plant(db, "a", 30).await;
    let begun = std::time::Instant::now();
    let report = letters(db).replay(&Filter::new(), &Replay::new().per_second(20.0)).await.unwrap();
    assert_eq!(report.replayed, 30);
    let took = begun.elapsed().as_secs_f64();
    assert!((1.0..20.0).contains(&took), "{took} s for 30 letters at 20 a second");
}

async fn at_a_rate_nobody_waits_behind_the_last_letter(db: &Db) {
    plant(db, "a", 1).await;
    plant(db, "b", 1).await;
    plant(db, "c", 1).await;
    let one = db.int("SELECT id FROM outbox_dlq WHERE queue = 'a'").await;
    // The second meets one that stays.
    db.exec("UPDATE outbox_dlq SET timer_id = 't' WHERE queue = 'b'").await;
    db.send(outbox::Outgoing::new("b", &1).timer_id("t")).await;
    for (filter, kept) in [(Filter::new().ids([one]), 0), (Filter::new(), 1)] {
        let (letters, how) = (letters(db), Replay::new().per_second(0.001));
        let replay = letters.replay(&filter, &how);
        let report = outbox_tests::wait::soon("it ends", replay).await.unwrap();
        assert_eq!((report.replayed, report.kept), (1, kept));
    }
}

/// As while a batch waits for somebody's transaction.
async fn what_a_stall_held_back_does_not_go_out_all_at_once(db: &Db) {
    plant(db, "a", 60).await;
    let (mut begun, mut after) = (None, 0);
    let how = Replay::new().per_second(20.0);
    let stall = |batch: &[Replayed]| match begun {
        None => {
            std::thread::sleep(std::time::Duration::from_secs(2));
            begun = Some(std::time::Instant::now());
        }
        Some(_) => after += batch.len(),
    };
    letters(db).replay_with(&Filter::new(), &how, stall).await.unwrap();
    let took = begun.unwrap().elapsed().as_secs_f64();
    assert_eq!(after, 40);
    assert!(took > 0.9, "40 letters in {took} s at 20 a second");
}

/// Nobody else writes while a batch is put back.
async fn large_letters_go_back_a_few_at_a_time(db: &Db) {
    plant(db, "a", 5).await;
    let large =
        if db.is_postgres() { "decode(repeat('00', 5 << 20), 'hex')" } else { "zeroblob(5 << 20)" };
    db.exec(format!("UPDATE outbox_dlq SET payload = {large}")).await;
    let mut batches = Vec::new();
    let note = |batch: &[Replayed]| batches.push(batch.len());
    let report = letters(db).replay_with(&Filter::new(), &Replay::new(), note).await.unwrap();
    assert_eq!((report.replayed, &*batches), (5, &[2, 2, 1][..]));
    assert_eq!(db.rows().await, 5);
}
