//! Pages, put together, are all letters, each once.

use std::collections::BTreeSet;

use outbox::dlq::{Cursor, Filter, Letter, Replay, Status};
use outbox_tests::db::Db;
use outbox_tests::wait::soon;
use outbox_tests::{on_both, on_postgres};

use super::{letters, plant};

on_both!(
    pages_have_every_letter_once_while_letters_come_and_go,
    letters_of_one_moment_are_paged_by_their_ids,
    a_cursor_survives_as_text,
    a_page_has_a_letter_at_least,
    a_letter_that_is_dealt_with_meanwhile_is_not_told_twice,
);

on_postgres!(letters_that_failed_at_no_time_are_paged_too);

/// Every letter that pages of seven have; after each page something happens.
async fn all(db: &Db, filter: &Filter, mut meanwhile: impl AsyncFnMut()) -> Vec<Letter> {
    let (mut after, mut all) = (None, Vec::new());
    loop {
        let page = letters(db).list(filter, after, 7).await.unwrap();
        assert!(page.letters.len() == 7 || page.next.is_none());
        all.extend(page.letters);
        let Some(next) = page.next else { return all };
        after = Some(next);
        meanwhile().await;
    }
}

fn ids(letters: &[Letter]) -> Vec<i64> {
    letters.iter().map(|letter| letter.id).collect()
}

async fn pages_have_every_letter_once_while_letters_come_and_go(db: &Db) {
    for filter in [
        Filter::new(),
        Filter::new().status(Status::Failed),
        Filter::new().queue("a"),
        Filter::new().queue("a").status(Status::Failed),
        Filter::new().fingerprint("f00d"),
        Filter::new().error_kind("OrderError"),
    ] {
        db.exec("DELETE FROM outbox_dlq").await;
        plant(db, "a", 30).await;
        db.exec("UPDATE outbox_dlq SET fingerprint = 'f00d'").await;
        let before: BTreeSet<i64> = db
            .texts("SELECT CAST(id AS text) FROM outbox_dlq")
            .await
            .iter()
            .map(|id| id.parse().unwrap())
            .collect();
        let found = all(db, &filter, async || {
            plant(db, "a", 3).await;
            db.exec("UPDATE outbox_dlq SET fingerprint = 'f00d'").await;
        })
        .await;
        assert!(found.is_sorted_by_key(|letter| std::cmp::Reverse((letter.failed_at, letter.id))));
        let found = ids(&found);
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len(), "no doubles");
        assert!(before.is_subset(&found.iter().copied().collect()), "{filter:?}");
    }
}

/// Each status is read by a statement of its own.
async fn a_letter_that_is_dealt_with_meanwhile_is_not_told_twice(db: &Db) {
    let mut met = 0;
    // How many pages are read meanwhile is the machine's business.
    for _ in 0..20 {
        met += while_letters_are_dealt_with(db).await;
        if met > 20 {
            return;
        }
    }
    panic!("{met} pages met letters that were dealt with");
}

/// How many pages had some letters that were dealt with and some that were not.
async fn while_letters_are_dealt_with(db: &Db) -> usize {
    db.exec("DELETE FROM outbox_dlq").await;
    plant(db, "a", 200).await;
    let mark = async {
        for n in 1..=200 {
            db.exec(format!("UPDATE outbox_dlq SET status = 'ignored' WHERE original_id = {n}"))
                .await;
        }
    };
    let read = async {
        let mut met = 0;
        while db.int("SELECT count(*) FROM outbox_dlq WHERE status = 'failed'").await > 0 {
            let page = letters(db).list(&Filter::new(), None, 500).await.unwrap();
            let open = page.letters.iter().filter(|letter| letter.status == Status::Failed).count();
            let ids = ids(&page.letters);
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "no doubles");
            met += usize::from((1..ids.len()).contains(&open));
        }
        met
    };
    tokio::join!(mark, read).1
}

async fn letters_of_one_moment_are_paged_by_their_ids(db: &Db) {
    plant(db, "a", 40).await;
    db.exec("UPDATE outbox_dlq SET failed_at = (SELECT max(failed_at) FROM outbox_dlq)").await;
    db.exec("UPDATE outbox_dlq SET status = 'ignored' WHERE original_id % 2 = 0").await;
    for filter in [Filter::new(), Filter::new().queue("a")] {
        let found = ids(&all(db, &filter, async || ()).await);
        assert_eq!(found.len(), 40);
        assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
    }
}

/// Or whoever asks for none would take it for the last one.
async fn a_page_has_a_letter_at_least(db: &Db) {
    plant(db, "a", 2).await;
    let page = letters(db).list(&Filter::new(), None, 0).await.unwrap();
    assert!(page.letters.len() == 1 && page.next.is_some(), "{page:?}");
}

async fn a_cursor_survives_as_text(db: &Db) {
    plant(db, "a", 3).await;
    let first = letters(db).list(&Filter::new(), None, 2).await.unwrap();
    let next: Cursor = first.next.unwrap().to_string().parse().unwrap();
    let second = letters(db).list(&Filter::new(), Some(next), 2).await.unwrap();
    assert_eq!((first.letters.len(), second.letters.len(), second.next), (2, 1, None));
    assert_eq!(second.letters[0].original_id, 1);
}

/// As somebody writes `infinity` to keep a letter from being dropped with its month.
async fn letters_that_failed_at_no_time_are_paged_too(db: &Db) {
    plant(db, "a", 3).await;
    db.exec("UPDATE outbox_dlq SET failed_at = 'infinity'").await;
    let (mut after, mut found) = (None, Vec::new());
    for _ in 0..3 {
        let page = letters(db).list(&Filter::new(), after, 1).await.unwrap();
        found.extend(ids(&page.letters));
        after = page.next;
    }
    let newest = db.int("SELECT max(id) FROM outbox_dlq").await;
    assert_eq!(found, [newest, newest - 1, newest - 2]);

    db.exec("UPDATE outbox_dlq SET timer_id = 'live'").await;
    db.send(outbox::Outgoing::new("a", &0).timer_id("live")).await;
    let (letters, how) = (letters(db), Replay::new());
    let named = Filter::new().ids([newest]);
    let report = soon("it ends", letters.replay(&named, &how)).await.unwrap();
    assert_eq!((report.replayed, report.kept), (0, 1));
}
