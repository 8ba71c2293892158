//! A claim passes by rows that somebody writes to while it is made, and says that there
//! are more.

use std::time::Duration;

use outbox::testing::store::{Before, Claim, Expects, Store};
use outbox_tests::backend::unique;
use outbox_tests::wait::eventually;
use uuid::Uuid;

use crate::bench::{Bench, Postgres, SqlBench, Sqlite, Steps, lease};

/// Holds each claim behind the moment from which it sees the table: a name that is read
/// on the way to the rows is a gate.
async fn gate(b: &Postgres) -> String {
    let lock = format!("hashtextextended('{}', 0)", unique("gate"));
    b.execute(&format!(
        "CREATE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql VOLATILE
            SET lock_timeout = 0 AS $$ BEGIN
            PERFORM pg_advisory_lock_shared({lock});
            PERFORM pg_advisory_unlock_shared({lock});
            RETURN false;
        END $$;
        ALTER TABLE outbox_paused RENAME TO paused_kept;
        CREATE VIEW outbox_paused AS
            SELECT * FROM paused_kept UNION ALL SELECT kept.* FROM (VALUES (gate())) AS gate(open)
                LEFT JOIN paused_kept AS kept ON true WHERE gate.open;
        GRANT SELECT ON outbox_paused TO PUBLIC"
    ))
    .await;
    lock
}

/// Whether a claim stands before the gate.
async fn arrived(b: &Postgres, lock: &str) -> bool {
    let waits = format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
            AND ((classid::bigint << 32) | objid::bigint) = {lock}"
    );
    b.number(&waits).await > 0
}

async fn rows_that_are_written_to_meanwhile_are_asked_for_at_once(b: Postgres) {
    let ids = b.put_many("q", 2).await;
    let lock = gate(&b).await;
    let all = [Expects::Few, Expects::Many, Expects::Plenty];
    for (limit, expects) in all.into_iter().flat_map(|expects| [(10, expects), (1, expects)]) {
        let case = format!("{limit} rows at most, expects: {expects:?}");
        let claim = Claim { expects, ..b.claim_of(&["q"], limit) };
        let mut closed = b.begin().await;
        let close = sqlx::AssertSqlSafe(format!("SELECT pg_advisory_xact_lock({lock})"));
        sqlx::query(close).execute(&mut *closed).await.unwrap();
        let write = async {
            eventually("the claim stands before the gate", async || arrived(&b, &lock).await).await;
            b.set_headers(ids[0], Some("{\"written\": \"meanwhile\"}")).await;
            b.commit(closed).await;
        };
        let (taken, ()) = tokio::join!(b.taken(&claim), write);
        let took: Vec<_> = taken.rows.iter().map(|claimed| claimed.row.id).collect();
        assert_eq!(took, ids[1..][..limit.min(2) - 1], "{case}");
        assert_eq!(taken.next, Some(Duration::ZERO), "{case}");
        assert_eq!(b.claim(&["q"], 1).await[0].row.id, ids[0], "{case}");
        b.execute("UPDATE outbox SET acquired_token = NULL, acquired_at = NULL").await;
    }
}

/// The rows of a claim are read once it is committed.
async fn a_row_that_is_deleted_before_it_is_read_leaves_the_others_theirs(b: Sqlite) {
    let ids = b.put_many("q", 3).await;
    let token = Uuid::new_v4().simple();
    let expired = format!("acquired_token = x'{token}', acquired_at = 0 WHERE id = {}", ids[2]);
    b.execute(&format!("UPDATE outbox SET {expired}")).await;
    b.execute(&format!(
        "CREATE TRIGGER gone AFTER UPDATE ON outbox WHEN NEW.id = {0}
         BEGIN DELETE FROM outbox WHERE id = {0}; END",
        ids[1]
    ))
    .await;
    let claim = Claim { expects: Expects::Plenty, ..b.claim_of(&["q"], 3) };
    let taken = b.taken(&claim).await;
    let took: Vec<_> = taken.rows.iter().map(|claimed| claimed.row.id).collect();
    assert_eq!(took, [ids[0], ids[2]]);
    let before: Vec<_> = taken.rows.iter().map(|claimed| claimed.before).collect();
    assert_eq!(before, [Before::Settled, Before::Expired], "what was found of each");
    assert_eq!(
        b.store().ack(&[lease(&taken.rows[0]), lease(&taken.rows[1])]).await.unwrap(),
        [true; 2]
    );
}

mod on_sqlite {
    use super::*;

    cases! {
        sqlite only, "the others read them in the statement that claims":
        a_row_that_is_deleted_before_it_is_read_leaves_the_others_theirs,
    }
}

cases! {
    postgres only, "nobody writes to the others' tables while they are claimed from":
    rows_that_are_written_to_meanwhile_are_asked_for_at_once,
}
