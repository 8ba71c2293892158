//! Replays in a transaction of the caller.

use outbox::dlq::{Canary, Filter, Replay, Status};
use outbox_tests::db::{Db, Pool};
use outbox_tests::{on_both, on_postgres};

use super::{letters, plant};

on_postgres!(a_replayed_message_has_the_time_of_the_call_not_of_the_transaction);
outbox_tests::cases!(sqlite in sqlite_only:
    what_stands_in_the_way_of_a_replay_is_told_with_the_way_out);
on_both!(
    a_replay_counts_when_the_callers_transaction_commits,
    a_transaction_of_another_database_is_refused,
    a_filter_for_what_cannot_be_stored_spoils_no_transaction,
    what_needs_transactions_of_its_own_is_refused,
);

/// Replays all in a transaction, and ends it.
async fn replay(db: &Db, commit: bool) -> usize {
    let (filter, how) = (Filter::new().queue("a"), Replay::new());
    let told = match &db.pool {
        Pool::Postgres(pool) => {
            let mut tx = pool.begin().await.unwrap();
            let told = letters(db).replay_in(&mut tx, &filter, &how).await.unwrap();
            if commit {
                tx.commit().await.unwrap()
            } else {
                tx.rollback().await.unwrap()
            }
            told
        }
        Pool::Sqlite(pool) => {
            let mut tx = outbox::sqlite::begin(pool).await.unwrap();
            let told = letters(db).replay_in(&mut tx, &filter, &how).await.unwrap();
            if commit {
                tx.commit().await.unwrap()
            } else {
                tx.rollback().await.unwrap()
            }
            told
        }
    };
    told.iter().filter(|one| one.row.is_ok()).count()
}

async fn a_replay_counts_when_the_callers_transaction_commits(db: &Db) {
    plant(db, "a", 3).await;
    let before = letters(db).list(&Filter::new(), None, 10).await.unwrap();
    assert_eq!(replay(db, false).await, 3);
    assert_eq!(letters(db).list(&Filter::new(), None, 10).await.unwrap(), before);
    assert_eq!(db.rows().await, 0);
    assert_eq!(replay(db, true).await, 3);
    assert_eq!(db.rows().await, 3);
    assert_eq!(letters(db).count(&Filter::new().status(Status::Failed)).await.unwrap(), 0);
}

async fn a_replayed_message_has_the_time_of_the_call_not_of_the_transaction(db: &Db) {
    plant(db, "a", 1).await;
    let mut tx = db.pg().begin().await.unwrap();
    // The transaction has begun for the server, and its `now()` is fixed.
    let clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let called: i64 = sqlx::query_scalar(clock).fetch_one(&mut *tx).await.unwrap();
    letters(db).replay_in(&mut tx, &Filter::new(), &Replay::new()).await.unwrap();
    tx.commit().await.unwrap();
    let first = "SELECT (extract(epoch FROM least(created_at, next_attempt_at)) * 1000000)::bigint \
        FROM outbox";
    assert!(db.int(first).await > called);
}

/// A plain `begin` reads, and cannot write behind somebody else who did.
async fn what_stands_in_the_way_of_a_replay_is_told_with_the_way_out(db: &Db) {
    plant(db, "a", 1).await;
    let Pool::Sqlite(pool) = &db.pool else { panic!("this is PostgreSQL") };
    let mut early = pool.begin().await.unwrap();
    sqlx::query("SELECT * FROM outbox").fetch_all(&mut *early).await.unwrap();
    db.publish("other", 1).await;
    let told = letters(db).replay_in(&mut early, &Filter::new(), &Replay::new()).await.unwrap_err();
    assert!(told.to_string().contains("`outbox::sqlite::begin(&pool)`"), "{told}");
    early.rollback().await.unwrap();
}

async fn a_filter_for_what_cannot_be_stored_spoils_no_transaction(db: &Db) {
    plant(db, "a", 1).await;
    let (letters, filter, how) = (letters(db), Filter::new().queue("a\0"), Replay::new());
    match &db.pool {
        Pool::Postgres(pool) => {
            let mut tx = pool.begin().await.unwrap();
            assert!(letters.replay_in(&mut tx, &filter, &how).await.unwrap().is_empty());
            outbox::publish(&mut tx, "q", &1).await.unwrap();
            tx.commit().await.unwrap();
        }
        Pool::Sqlite(pool) => {
            let mut tx = outbox::sqlite::begin(pool).await.unwrap();
            assert!(letters.replay_in(&mut tx, &filter, &how).await.unwrap().is_empty());
            outbox::publish(&mut tx, "q", &1).await.unwrap();
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(db.rows().await, 1);
}

async fn a_transaction_of_another_database_is_refused(db: &Db) {
    plant(db, "a", 1).await;
    let (filter, how) = (Filter::new(), Replay::new());
    let told = if db.is_postgres() {
        let other = Db::bare_sqlite().await.unwrap();
        let Pool::Sqlite(pool) = &other.pool else { unreachable!() };
        let mut tx = outbox::sqlite::begin(pool).await.unwrap();
        let told = letters(db).replay_in(&mut tx, &filter, &how).await.unwrap_err();
        tx.rollback().await.unwrap();
        other.close().await;
        told
    } else {
        let Some(other) = Db::bare_postgres().await else { return };
        let mut tx = other.pg().begin().await.unwrap();
        let told = letters(db).replay_in(&mut tx, &filter, &how).await.unwrap_err();
        tx.rollback().await.unwrap();
        other.close().await;
        told
    };
    assert!(told.to_string().contains("another database"), "{told}");
}

async fn what_needs_transactions_of_its_own_is_refused(db: &Db) {
    for how in [Replay::new().canary(Canary::new(1, 0.0)), Replay::new().per_second(1.0)] {
        let told = match &db.pool {
            Pool::Postgres(pool) => {
                let mut tx = pool.begin().await.unwrap();
                letters(db).replay_in(&mut tx, &Filter::new(), &how).await.unwrap_err()
            }
            Pool::Sqlite(pool) => {
                let mut tx = outbox::sqlite::begin(pool).await.unwrap();
                letters(db).replay_in(&mut tx, &Filter::new(), &how).await.unwrap_err()
            }
        };
        assert!(told.to_string().contains("of their own"), "{told}");
    }
}
