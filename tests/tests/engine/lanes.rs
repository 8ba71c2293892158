//! How many claims a process keeps under way, alone and beside others.

use std::time::Duration;

use outbox::Subscriber;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use tokio::time::sleep;

on_postgres!(
    who_claims_alone_has_two_claims_under_way,
    who_meets_others_has_one_under_way_and_handles_every_row,
);

const ROWS: i64 = 15_000;

/// The most claims of the app that were seen at once, once it knows its handler and
/// whether it is alone.
async fn most_claims(db: &Db) -> i64 {
    db.exec(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM pg_sleep(0.03); RETURN NULL; END $$",
    )
    .await;
    db.exec(
        "CREATE TRIGGER slow BEFORE UPDATE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    )
    .await;
    let rows = format!(
        "INSERT INTO outbox (queue, payload) SELECT 'q', '1' FROM generate_series(1, {ROWS})"
    );
    db.exec(rows).await;
    let quick = Subscriber::new("quick", "q", |_: outbox::Context| async {});
    let running = db.app().only([quick]).start().await.unwrap();
    let claims = "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event = 'PgSleep'";
    let (mut most, mut samples) = (0, 0);
    loop {
        match db.rows().await {
            0 => break,
            1..12_000 => {
                most = most.max(db.int(claims).await);
                samples += 1;
            }
            _ => {}
        }
        sleep(Duration::from_millis(2)).await;
    }
    assert!(samples > 20, "{samples}");
    running.stop().await.unwrap();
    most
}

async fn who_claims_alone_has_two_claims_under_way(db: &Db) {
    assert_eq!(most_claims(db).await, 2);
}

async fn who_meets_others_has_one_under_way_and_handles_every_row(db: &Db) {
    // The two places for claims under way, as if other processes had them.
    let mut others = db.pg().begin().await.unwrap();
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, place))
        FROM generate_series(0, 1) AS place";
    let name = format!("{} claims q", db.names.channel());
    sqlx::query(lock).bind(name).execute(&mut *others).await.unwrap();
    assert_eq!(most_claims(db).await, 1);
    others.rollback().await.unwrap();
}
