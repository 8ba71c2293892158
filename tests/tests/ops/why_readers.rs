//! Why a row waits that nobody reads.

use outbox::ops::{Answer, Sureness, Why, WhyOptions};
use outbox_tests::db::Db;
use outbox_tests::probe::gated;
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};

use super::why::{read_by_somebody, why};
use super::{lease, operator};

on_both!(
    a_row_that_no_subscriber_reads_says_so,
    a_queue_whose_rows_are_leased_has_a_reader,
    a_program_without_the_subscriber_says_so,
);

on_postgres!(a_queue_on_which_somebody_sleeps_has_a_reader,);

fn nobody(why: &Why) -> Option<(Sureness, Option<bool>)> {
    why.answers.iter().find_map(|one| match one {
        Answer::NobodyReads { sure, program_would } => Some((*sure, *program_would)),
        _ => None,
    })
}

async fn a_row_that_no_subscriber_reads_says_so(db: &Db) {
    let id = db.publish("q", 1).await;
    let found = why(db, id).await;
    // A SQLite file does not show who sleeps.
    let sure = if db.is_postgres() { Sureness::Likely } else { Sureness::Guess };
    assert_eq!(nobody(&found), Some((sure, None)));
    assert_eq!(matches!(found.answers[0], Answer::Ready { .. }), !db.is_postgres(), "{found:?}");
}

async fn a_queue_whose_rows_are_leased_has_a_reader(db: &Db) {
    let running = read_by_somebody(db, "q").await;
    let id = db.publish("q", 1).await;
    assert_eq!(nobody(&why(db, id).await), None);
    drop(running);
    // Those of the row itself do not count, nor those that are long over.
    let id = db.publish("other", 1).await;
    lease(db, id, 200).await;
    let found = why(db, id).await;
    let ran_out = |one: &Answer| matches!(one, Answer::LeaseRanOut { .. });
    assert!(found.answers.iter().any(ran_out), "{found:?}");
    let means: Vec<_> = found.answers.iter().map(|one| one.told().means).collect();
    let others = "none of its other rows is under a lease that still holds";
    assert!(means.iter().any(|means| means.contains(others)), "{means:?}");
    let old = db.publish("other", 1).await;
    lease(db, old, 1000).await;
    assert!(nobody(&why(db, id).await).is_some());
}

async fn a_program_without_the_subscriber_says_so(db: &Db) {
    let id = db.publish("q", 1).await;
    let of = async |queue| {
        let app = db.app().only([gated("it", queue).0]);
        let options = WhyOptions::default().with_handlers_of(&app);
        operator(db).why(id, &options).await.unwrap()
    };
    assert_eq!(nobody(&of("another").await), Some((Sureness::Likely, Some(false))));
    assert_eq!(nobody(&of("q").await).map(|it| it.1), Some(Some(true)));
    // Who sleeps shows on PostgreSQL. In a file the row would not have been claimed in any case.
    operator(db).pause(&["q"], None).await.unwrap();
    let likely = db.is_postgres().then_some((Sureness::Likely, Some(false)));
    assert_eq!(nobody(&of("another").await), likely);
}

async fn a_queue_on_which_somebody_sleeps_has_a_reader(db: &Db) {
    let id = db.publish("q", 1).await;
    operator(db).pause(&["q"], None).await.unwrap();
    assert!(nobody(&why(db, id).await).is_some());
    let running = db.app().only([gated("it", "q").0]).start().await.unwrap();
    eventually("it sleeps", async || nobody(&why(db, id).await).is_none()).await;
    running.stop().await.unwrap();
}
