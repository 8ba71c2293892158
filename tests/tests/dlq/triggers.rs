//! A replay that somebody's trigger takes a part of puts nothing back, and says so.

use outbox::dlq::{Filter, Replay};
use outbox_tests::db::Db;
use outbox_tests::{on_both, on_postgres};

use super::{letters, plant};

on_both!(
    a_letter_that_a_trigger_keeps_open_is_not_put_back,
    a_letter_that_a_trigger_leaves_out_is_not_told_as_a_live_timer,
);

on_postgres!(a_message_that_a_trigger_takes_its_letter_from_is_not_put_back);

/// Leaves out what is written so, or writes it otherwise.
async fn trigger(db: &Db, when: &str, instead: &str) {
    if db.is_postgres() {
        db.exec(format!(
            "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN {instead} END $$; \
             CREATE TRIGGER meddle BEFORE {when} FOR EACH ROW EXECUTE FUNCTION meddle()"
        ))
        .await;
    } else {
        db.exec(format!("CREATE TRIGGER meddle BEFORE {when} BEGIN SELECT RAISE(IGNORE); END"))
            .await;
    }
}

/// Each time, and leaves everything as it was: no letter is still locked either.
async fn is_refused(db: &Db) {
    for _ in 0..20 {
        let refused = letters(db).replay(&Filter::new(), &Replay::new()).await.unwrap_err();
        assert!(refused.to_string().contains("a trigger of "), "{refused}");
        let free = if db.is_postgres() { "FOR UPDATE SKIP LOCKED" } else { "" };
        let free = format!("SELECT id FROM outbox_dlq WHERE status = 'failed' {free}");
        let free = db.int(format!("SELECT count(*) FROM ({free}) AS free")).await;
        assert_eq!((db.rows().await, free), (0, 2));
    }
}

/// Each replay would put it back once more.
async fn a_letter_that_a_trigger_keeps_open_is_not_put_back(db: &Db) {
    plant(db, "a", 2).await;
    trigger(db, "UPDATE ON outbox_dlq", "RETURN NULL;").await;
    is_refused(db).await;
}

async fn a_letter_that_a_trigger_leaves_out_is_not_told_as_a_live_timer(db: &Db) {
    plant(db, "a", 2).await;
    trigger(db, "INSERT ON outbox", "RETURN NULL;").await;
    is_refused(db).await;
    // Of a timer nobody can tell.
    db.exec("UPDATE outbox_dlq SET timer_id = 'once'").await;
    let report = letters(db).replay(&Filter::new(), &Replay::new()).await.unwrap();
    assert_eq!((report.replayed, report.kept, db.rows().await), (0, 2, 0));
}

/// By its headers a row tells which letter it is of.
async fn a_message_that_a_trigger_takes_its_letter_from_is_not_put_back(db: &Db) {
    plant(db, "a", 2).await;
    trigger(db, "INSERT ON outbox", "NEW.headers = '{\"tenant\": \"acme\"}'; RETURN NEW;").await;
    is_refused(db).await;
}
