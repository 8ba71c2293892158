//! Replays that wait for others, and others that wait for them.

use outbox::dlq::{Filter, Replay};
use outbox::{Outgoing, Published, Publisher};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::eventually;

use super::{letters, plant};

on_postgres!(
    replays_that_wait_for_each_other_both_end_well,
    a_replay_that_the_server_ends_for_a_deadlock_is_made_again,
);

/// Of letters with the same timer names, in opposite orders, and beside somebody who sets them.
async fn replays_that_wait_for_each_other_both_end_well(db: &Db) {
    const COUNT: u32 = 100;
    // Were they to wait for each other, none would find out before its patience is over.
    deadlocks_after(db, "1min").await;
    plant(db, "up", COUNT).await;
    plant(db, "down", COUNT).await;
    db.exec(format!(
        "UPDATE outbox_dlq SET timer_id = \
         CASE WHEN queue = 'up' THEN original_id ELSE {COUNT} + 1 - original_id END::text"
    ))
    .await;
    // So long that neither is through before the other has begun.
    db.exec(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END $$",
    )
    .await;
    db.exec("CREATE TRIGGER slow BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION slow()")
        .await;
    let how = Replay::new().to_queue("both");
    let letters = letters(db);
    let (up, down) = (Filter::new().queue("up"), Filter::new().queue("down"));
    let sets = async {
        let mut tx = db.pg().begin().await.unwrap();
        let timer = |n: u32| Outgoing::new("both", &n).timer_id(n.to_string());
        let set = Publisher::default().publish_batch(&mut tx, (1..=COUNT).map(timer)).await;
        tx.commit().await.unwrap();
        set.unwrap().iter().filter(|one| matches!(one, Published::Inserted(_))).count() as u64
    };
    let (up, down, set) =
        tokio::join!(letters.replay(&up, &how), letters.replay(&down, &how), sets);
    let (up, down) = (up.unwrap(), down.unwrap());
    assert_eq!(up.replayed + down.replayed + set, 100, "{up:?}, {down:?}");
    assert_eq!(up.kept + down.kept, 100 + set, "{up:?}, {down:?}");
    assert_eq!(db.rows().await, 100);
}

/// As by somebody who sets timers in another order than that of their names.
async fn a_replay_that_the_server_ends_for_a_deadlock_is_made_again(db: &Db) {
    // It waits for five seconds, and looks for a deadlock after three.
    deadlocks_after(db, "3s").await;
    plant(db, "q", 2).await;
    db.exec("UPDATE outbox_dlq SET timer_id = CASE original_id WHEN 1 THEN 'a' ELSE 'b' END").await;
    let mut tx = db.pg().begin().await.unwrap();
    sqlx::query("SET LOCAL deadlock_timeout = '1min'").execute(&mut *tx).await.unwrap();
    let timer = |name: &str| Outgoing::new("q", &0).timer_id(name);
    timer("b").publish(&mut tx).await.unwrap();
    let (letters, filter, how) = (letters(db), Filter::new(), Replay::new());
    let sets = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event_type = 'Lock'";
        eventually("the replay waits for `b`", async || db.int(waits).await == 1).await;
        timer("a").publish(&mut tx).await.expect("the replay gives way");
        tx.commit().await.unwrap();
    };
    let (report, ()) = tokio::join!(letters.replay(&filter, &how), sets);
    let report = report.unwrap();
    assert_eq!((report.replayed, report.kept), (0, 2));
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    eventually("the server has told", async || db.int(deadlocks).await == 1).await;
}

async fn deadlocks_after(db: &Db, time: &str) {
    let name = db.pg().connect_options().get_database().unwrap().to_owned();
    db.exec(format!("ALTER DATABASE {name} SET deadlock_timeout = '{time}'")).await;
}
