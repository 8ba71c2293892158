//! The machine's clock is set back by an hour, and forward again, while two processes share a
//! SQLite file: it is the clock of both.

use outbox::Outgoing;
use outbox_tests::clock::Clock;
use outbox_tests::db::Db;
use outbox_tests::wait::{PATIENCE, eventually};
use outbox_tests::worker::Worker;
use tokio::process::Command;

use super::SECOND;

const NOW: &str = "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";
/// Of a row that was published, or handled, when the clock showed the hour before.
const BACK: i64 = 1800 * 1000;
/// Messages that the test publishes.
const WAITING: i64 = 5;

async fn count(db: &Db, which: &str) -> i64 {
    let joined = "FROM published LEFT JOIN handled USING (n)";
    db.int(format!("SELECT count(*) {joined} WHERE {which}")).await
}

/// Both publish all the time, and handle what either has published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_back_under_two_processes_on_a_file_stalls_nothing_and_brings_nothing_early() {
    let Some((clock, variables)) = Clock::with_variables() else { return };
    let Some(db) = Db::sqlite().await else { return };
    db.exec("CREATE TABLE published (n INTEGER PRIMARY KEY, due INTEGER NOT NULL)").await;
    db.exec("CREATE TABLE handled (n INTEGER NOT NULL, at INTEGER NOT NULL)").await;
    let workers = [(); 2].map(|()| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_faulty"));
        command.args([&*db.url, "steady producer"]).envs(variables.iter().cloned());
        Worker::spawn(command)
    });
    eventually("they work", async || count(&db, "at > 0").await > 100).await;
    // Due after the step, however long it takes to get there.
    let later = 10 * SECOND;
    for n in 1..=WAITING {
        let due = format!("{NOW} + {}", later.as_millis());
        db.exec(format!("INSERT INTO published VALUES ({n}, {due})")).await;
        db.send(Outgoing::new("timed", &n).delay(later)).await;
    }
    // This process has the true time.
    let now = async || db.int(format!("SELECT {NOW}")).await;
    let step = now().await - BACK;
    clock.set(-3600);
    let set = now().await;
    // Not due at the step: nobody can have claimed it.
    let before = format!("due > {set} AND due <= {set} + {}", later.as_millis());
    let after = format!("due <= {step}");
    let of_those = async |those: &str, what: &str| count(&db, &format!("{those} AND {what}")).await;
    eventually("what comes then is handled, also what is retried or put off", async || {
        of_those(&after, "at > 0").await > 200
            && of_those(&after, "at > 0 AND n % 5 = 0").await > 20
    })
    .await;
    // Not what the process of the other one handled before it saw the step, and noted so.
    let late = format!("at > due + {} AND at <= {step}", PATIENCE.as_millis());
    assert_eq!(of_those(&after, &late).await, 0, "nothing waits behind what is an hour away");
    // What waited when the clock was set back is an hour late, and not brought now. Of each
    // process one may have been noted before the step and published after it.
    let waiting = of_those(&before, "at IS NULL").await;
    let across = of_those(&before, "at IS NOT NULL").await;
    assert!(waiting >= WAITING && across <= 2, "{waiting} wait, {across} came");

    clock.set(0);
    eventually("what waited comes", async || of_those(&before, "at IS NULL").await == 0).await;
    for worker in workers {
        worker.stop().await;
    }
    // Of what ran just then, the end was noted by the new time.
    let ran = format!("due > {step} AND due <= {set} + 2000 AND at <= {step}");
    let early = format!("at < due AND NOT ({ran})");
    assert_eq!(count(&db, &early).await, 0, "handled before it was due");
    let last = {
        let mut command = Command::new(env!("CARGO_BIN_EXE_faulty"));
        Worker::spawn({
            command.args([&*db.url, "timed"]);
            command
        })
    };
    db.drained().await;
    last.stop().await;
    let [handled, distinct] =
        ["count(*)", "count(DISTINCT n)"].map(|counted| format!("SELECT {counted} FROM handled"));
    let published = db.int("SELECT count(*) FROM published").await;
    assert_eq!((db.int(handled).await, db.int(distinct).await), (published, published));
    assert_eq!(db.letters().await, 0);
    println!("{published} messages, of which {waiting} waited an hour");
    db.close().await;
}
