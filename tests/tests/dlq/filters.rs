//! Every word of a filter finds what it says, alone and with others.

use std::time::Duration;

use outbox::dlq::{Filter, Status};
use outbox_tests::db::Db;
use outbox_tests::letters::id_of;
use outbox_tests::on_both;

use super::{letters, plant};

on_both!(
    every_word_of_a_filter_finds_what_it_says,
    words_of_a_filter_hold_together,
    a_letter_opens_with_all_that_is_in_it,
    a_missing_table_is_told_with_what_to_do,
    hostile_words_find_nothing_and_do_no_harm,
);

/// Ten letters of `a`, five of `b`, all different in something.
async fn varied(db: &Db) {
    plant(db, "a", 10).await;
    plant(db, "b", 5).await;
    for change in [
        "failure_reason = 'rejected' WHERE queue = 'a' AND original_id = 1",
        "error_kind = 'timeout' WHERE queue = 'a' AND original_id <= 2",
        "fingerprint = 'f00d' WHERE original_id = 3",
        "status = 'resolved' WHERE queue = 'a' AND original_id = 4",
        "status = 'ignored' WHERE queue = 'a' AND original_id IN (5, 6)",
    ] {
        db.exec(format!("UPDATE outbox_dlq SET {change}")).await;
    }
}

/// Original ids, the oldest letter first, of both queues.
async fn found(db: &Db, filter: Filter) -> Vec<(String, i64)> {
    let page = letters(db).list(&filter, None, 100).await.unwrap();
    assert_eq!(page.next, None);
    assert_eq!(letters(db).count(&filter).await.unwrap(), page.letters.len() as u64);
    let mut found: Vec<_> =
        page.letters.into_iter().map(|letter| (letter.queue, letter.original_id)).collect();
    found.sort();
    found
}

fn of(queue: &str, ids: impl IntoIterator<Item = i64>) -> Vec<(String, i64)> {
    ids.into_iter().map(|id| (queue.to_owned(), id)).collect()
}

async fn every_word_of_a_filter_finds_what_it_says(db: &Db) {
    varied(db).await;
    let all = Filter::new;
    assert_eq!(found(db, all()).await.len(), 15);
    assert_eq!(found(db, all().queue("b")).await, of("b", 1..=5));
    assert_eq!(found(db, all().reason("rejected")).await, of("a", [1]));
    assert_eq!(found(db, all().error_kind("timeout")).await, of("a", [1, 2]));
    let both = [of("a", [3]), of("b", [3])].concat();
    assert_eq!(found(db, all().fingerprint("f00d")).await, both);
    assert_eq!(found(db, all().status(Status::Resolved)).await, of("a", [4]));
    assert_eq!(found(db, all().status(Status::Ignored)).await, of("a", [5, 6]));
    assert_eq!(found(db, all().status(Status::Failed)).await.len(), 12);
    let ids = "SELECT id FROM outbox_dlq WHERE queue = 'b' AND original_id = ";
    let ids = [db.int(format!("{ids}2")).await, db.int(format!("{ids}4")).await];
    assert_eq!(found(db, all().ids(ids)).await, of("b", [2, 4]));
    assert_eq!(found(db, all().ids([])).await, []);
    // Letter n of `a` failed about 11 - n seconds ago.
    let page = letters(db).list(&all().queue("a"), None, 10).await.unwrap();
    let at = |n: usize| page.letters[10 - n].failed_at;
    assert_eq!(found(db, all().queue("a").since(at(8))).await, of("a", 8..=10));
    assert_eq!(found(db, all().queue("a").until(at(3))).await, of("a", 1..=2));
}

async fn words_of_a_filter_hold_together(db: &Db) {
    varied(db).await;
    let filter = Filter::new().queue("a").error_kind("timeout").status(Status::Failed);
    assert_eq!(found(db, filter.clone().reason("rejected")).await, of("a", [1]));
    assert_eq!(found(db, filter.clone().fingerprint("f00d")).await, []);
    let long_ago = letters(db).now().await.unwrap() - Duration::from_secs(3600);
    assert_eq!(found(db, filter.clone().since(long_ago)).await, of("a", [1, 2]));
    assert_eq!(found(db, filter.until(long_ago)).await, []);
}

async fn a_letter_opens_with_all_that_is_in_it(db: &Db) {
    plant(db, "a", 2).await;
    db.exec("UPDATE outbox_dlq SET timer_id = 't', note = 'n' WHERE original_id = 2").await;
    let id = db.int("SELECT id FROM outbox_dlq WHERE original_id = 2").await;
    let opened = letters(db).show(id).await.unwrap().unwrap();
    assert_eq!(&opened.payload[..], b"2");
    assert_eq!(opened.headers().unwrap().get("tenant"), Some("acme"));
    let letter = &opened.letter;
    assert_eq!((letter.id, letter.original_id, letter.payload_bytes), (id, 2, 1));
    assert_eq!((&*letter.queue, letter.deliveries_count), ("a", 3));
    assert_eq!(letter.failure_reason, "retry_terminal");
    assert_eq!(letter.last_exception.as_deref(), Some("order 2 is broken"));
    assert_eq!(letter.error_kind.as_deref(), Some("OrderError"));
    assert_eq!(letter.timer_id.as_deref(), Some("t"));
    assert_eq!(letter.note.as_deref(), Some("n"));
    assert_eq!((letter.status, letter.replays), (Status::Failed, 0));
    assert_eq!((letter.resolved_at, letter.replayed_id), (None, None));
    assert_eq!(letter.failed_at, letter.created_at);
    assert!(!format!("{opened:?}").contains("broken"));
    assert_eq!(letters(db).show(4711).await.unwrap(), None);
    // What a page has is the same.
    let page = letters(db).list(&Filter::new().ids([id]), None, 1).await.unwrap();
    assert_eq!(page.letters, [opened.letter]);
}

async fn a_missing_table_is_told_with_what_to_do(db: &Db) {
    db.exec("ALTER TABLE outbox_dlq RENAME TO away").await;
    let letters = letters(db);
    let told = [
        letters.list(&Filter::new(), None, 1).await.unwrap_err().to_string(),
        letters.show(1).await.unwrap_err().to_string(),
        letters.groups(&Filter::new(), 1).await.unwrap_err().to_string(),
        letters.resolve(&Filter::new(), None).await.unwrap_err().to_string(),
        letters.replay(&Filter::new(), &outbox::dlq::Replay::new()).await.unwrap_err().to_string(),
    ];
    for told in told {
        assert!(told.contains("outbox_dlq") && told.contains("`outbox migrate`"), "{told}");
    }
}

async fn hostile_words_find_nothing_and_do_no_harm(db: &Db) {
    plant(db, "a", 1).await;
    for word in
        ["' OR true --", "a\n-- the filter", "x -- if queue", "$1", "?1", "\"outbox\"", "a\0"]
    {
        assert_eq!(found(db, Filter::new().queue(word)).await, []);
        assert_eq!(found(db, Filter::new().error_kind(word).reason(word)).await, []);
        let named = Filter::new().fingerprint(word).ids([id_of(db, 1).await]);
        assert_eq!(found(db, named).await, []);
    }
    assert_eq!(db.letters().await, 1);
}
