//! A claim that drains does not try to lock what others have locked.

use std::time::{Duration, SystemTime};

use outbox::testing::store::{Claim, Expects, Position};

use crate::bench::{Bench, Postgres, SqlBench, Steps};

/// Behind a place before all rows.
fn draining(b: &Postgres, rows: usize) -> Claim {
    let after = Some(Position { due: SystemTime::UNIX_EPOCH, id: 0 });
    Claim { after, expects: Expects::Plenty, ..b.claim_of(&["q"], rows) }
}

async fn lock(b: &Postgres, id: i64, how: &str) -> <Postgres as Bench>::Tx {
    let mut tx = b.begin().await;
    let lock = format!("SELECT FROM outbox WHERE id = $1 FOR {how}");
    sqlx::query(sqlx::AssertSqlSafe(lock)).bind(id).execute(&mut *tx).await.unwrap();
    tx
}

async fn rows_that_somebody_has_locked_are_passed_by_and_asked_for_again(b: Postgres) {
    let all = b.put_many("q", 4).await;
    for commits in [true, false] {
        let locks = lock(&b, all[1], "UPDATE").await;
        let taken = b.taken(&draining(&b, 4)).await;
        let took: Vec<_> = taken.rows.iter().map(|claimed| claimed.row.id).collect();
        assert_eq!(took, [all[0], all[2], all[3]]);
        assert_eq!(taken.next, Some(Duration::ZERO), "there are more");
        if commits {
            b.commit(locks).await;
        } else {
            b.rollback(locks).await;
        }
        b.execute("UPDATE outbox SET acquired_token = NULL, acquired_at = NULL").await;
    }
}

/// Whoever else writes in the meantime, and has since before they were locked.
async fn rows_whose_lockers_have_ended_are_taken_behind_a_place_too(b: Postgres) {
    let all = b.put_many("q", 4).await;
    let mut older = b.begin().await;
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *older).await.unwrap();
    let behind_a_place = draining(&b, 4);
    let from_the_start = Claim { after: None, ..draining(&b, 4) };
    for claim in [behind_a_place, from_the_start] {
        b.commit(lock(&b, all[0], "UPDATE").await).await;
        b.rollback(lock(&b, all[1], "UPDATE").await).await;
        // Two at once are told by a number of their own.
        let both = (lock(&b, all[2], "SHARE").await, lock(&b, all[2], "SHARE").await);
        b.commit(both.0).await;
        b.commit(both.1).await;
        let locked = "SELECT count(*) FROM outbox WHERE xmax <> 0";
        assert_eq!(b.number(locked).await, 3, "who locked them last is still known");
        let taken = b.taken(&claim).await;
        let took: Vec<_> = taken.rows.iter().map(|claimed| claimed.row.id).collect();
        assert_eq!(took, all);
        b.execute("UPDATE outbox SET acquired_token = NULL, acquired_at = NULL").await;
    }
    b.rollback(older).await;
}

cases! {
    postgres only, "elsewhere nobody locks rows":
    rows_that_somebody_has_locked_are_passed_by_and_asked_for_again,
    rows_whose_lockers_have_ended_are_taken_behind_a_place_too,
}
