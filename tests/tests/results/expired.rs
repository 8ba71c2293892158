//! A message that nobody started within its time is not started any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use outbox::{AckPolicy, Outcome};
use outbox_tests::db::{Db, Pool};
use outbox_tests::wait::{eventually, unless_stalled};

use super::*;

on_all!(
    what_is_due_too_late_is_not_run,
    what_is_started_in_time_is_run_however_long,
    a_retry_counts_from_the_publish,
    a_snooze_counts_from_the_publish,
    in_a_batch_only_those_that_are_late_are_left_out,
    acked_first_it_is_a_dead_letter_all_the_same,
);

outbox_tests::cases!(sqlite in sqlite_only:
    what_was_published_while_its_claim_waited_for_the_lock_has_its_time
);

/// Due after its time is over.
fn late(n: i64) -> Outgoing {
    let limit = MOMENT.as_millis().to_string();
    Outgoing::new("q", &n).delay(2 * MOMENT).header("outbox-expires-in", limit)
}

async fn what_is_due_too_late_is_not_run(stage: &Stage) {
    let play = stage.play(it(|_| ()), [late(7)]).await;
    play.gone().await;
    let scene = play.end().await;
    assert_eq!((scene.stats.dispatched, scene.stats.expired, scene.stats.dead_lettered), (0, 1, 1));
    let letter = scene.letter();
    assert_eq!((&*letter.reason, letter.kind, letter.exception), ("expired", None, None));
}

async fn what_is_started_in_time_is_run_however_long(stage: &Stage) {
    // Before it is started an app has to start. The broker's time stands still meanwhile.
    let limit = Duration::from_secs(12);
    let slow = Subscriber::new("it", "q", move |_| tokio::time::sleep(limit + MOMENT));
    let scene = stage.first(slow, Outgoing::new("q", &7).expires_in(limit)).await;
    scene.is_empty();
    assert_eq!((scene.stats.acked, scene.stats.expired), (1, 0));
}

/// Enough runs to see that they go on, and then the end. A database's time goes on by itself,
/// before the first run too: there the message has much, until it is aged.
async fn runs_until_it_expires(stage: &Stage, subscriber: Subscriber) {
    let aged = matches!(stage, Stage::Database(_));
    let time = if aged { HOUR / 2 } else { 50 * MOMENT };
    let play = stage.play(subscriber, [Outgoing::new("q", &7).expires_in(time)]).await;
    if aged {
        eventually("it runs again", async || play.stats().dispatched > 1).await;
        play.age().await;
    }
    play.gone().await;
    let scene = play.end().await;
    assert!(scene.stats.dispatched > 1 && scene.stats.expired == 1, "{:?}", scene.stats);
    assert_eq!(scene.letter().reason, "expired");
}

async fn a_retry_counts_from_the_publish(stage: &Stage) {
    let failing = it(|_| Err::<(), _>("again")).retry(Constant::new(5 * MOMENT));
    runs_until_it_expires(stage, failing).await;
}

async fn a_snooze_counts_from_the_publish(stage: &Stage) {
    runs_until_it_expires(stage, it(|_| Outcome::Snooze(5 * MOMENT))).await;
}

async fn in_a_batch_only_those_that_are_late_are_left_out(stage: &Stage) {
    let seen = Arc::<AtomicI64>::default();
    let sums = Arc::clone(&seen);
    let counting = Subscriber::batches("it", "q", 10, move |batch: Vec<Context>| {
        let sum: i64 = batch.iter().map(|ctx| ctx.decode::<i64>().unwrap()).sum();
        sums.fetch_add(sum, Ordering::SeqCst);
        async {}
    });
    let in_time = |n| Outgoing::new("q", &n).delay(2 * MOMENT).expires_in(HOUR);
    let play = stage.play(counting, [in_time(1), late(20), in_time(300), late(4000)]).await;
    play.gone().await;
    let scene = play.end().await;
    assert_eq!((scene.stats.acked, scene.stats.expired), (2, 2));
    let letters: Vec<_> = scene.letters.iter().map(|letter| &*letter.payload).collect();
    assert_eq!(letters, ["20", "4000"]);
    assert_eq!(seen.load(Ordering::SeqCst), 301);
}

async fn acked_first_it_is_a_dead_letter_all_the_same(stage: &Stage) {
    let play = stage.play(it(|_| ()).ack(AckPolicy::AckFirst), [late(7)]).await;
    play.gone().await;
    let scene = play.end().await;
    assert_eq!((scene.stats.dispatched, scene.stats.acked), (0, 0));
    assert_eq!(scene.letter().reason, "expired");
}

/// The claim was sent before the message was there.
async fn what_was_published_while_its_claim_waited_for_the_lock_has_its_time(db: &Db) {
    let Pool::Sqlite(pool) = &db.pool else { return };
    let case = async || {
        db.publish("q", 7).await;
        let mut tx = outbox::sqlite::begin(pool).await.unwrap();
        let app = db.app().only([it(|_| ())]);
        let (stats, publisher) = (app.stats(), app.publisher());
        let running = app.start().await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        let late = Outgoing::new("q", &8).expires_in(Duration::from_secs(2));
        publisher.send(&mut tx, late).await.unwrap();
        tx.commit().await.unwrap();
        db.drained().await;
        running.stop().await.unwrap();
        let one = stats.subscribers().remove(0);
        (one.acked, one.expired)
    };
    // It has these two seconds, and a machine that stands still starts nothing.
    let clear = async || db.exec("DELETE FROM outbox_dlq").await;
    unless_stalled(Duration::from_secs(1), (2, 0), async || {}, clear, case).await;
}
