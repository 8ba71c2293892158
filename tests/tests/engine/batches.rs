//! Batches, and rows that wait for slow handlers, on real databases.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::{
    Batch, BatchOutcome, Context, FromContext, Outgoing, State, Subscriber, Tx, subscriber,
};
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_both, on_postgres, probe};
use tokio::sync::Semaphore;

use super::leases::{BESIDE_OTHERS, owned};
use super::{HOUR, SECOND};

on_both!(
    a_plain_fn_of_batches_runs_beside_the_runtime_on_as_many_threads_as_workers,
    a_batch_takes_what_comes_while_it_waits,
    each_message_of_a_batch_is_settled_in_its_own_way,
    a_row_that_is_claimed_twice_for_a_batch_is_settled_as_was_said_of_it,
    no_more_rows_are_held_than_slow_handlers_will_reach,
    rows_that_wait_behind_a_handler_without_end_are_given_back_in_time,
    a_message_that_is_lost_while_its_batch_waits_to_start_is_not_started_with_it,
    a_message_that_runs_alone_holds_up_none_of_its_batch,
    a_message_that_is_lost_before_it_runs_alone_is_not_started,
);

on_postgres!(
    one_transaction_settles_what_succeeded_of_a_batch,
    a_lost_lease_undoes_the_transaction_of_its_batch,
    a_lease_that_is_known_to_be_lost_undoes_it_too,
    a_message_whose_lease_is_lost_publishes_nothing_and_the_others_of_its_batch_do,
);

type Sizes = Arc<Mutex<Vec<usize>>>;

async fn publish(db: &Db, numbers: std::ops::Range<i64>) {
    db.send_all(numbers.map(|n| Outgoing::new("q", &n))).await;
}

async fn a_batch_takes_what_comes_while_it_waits(db: &Db) {
    let sizes = Sizes::default();
    let seen = Arc::clone(&sizes);
    let counting = Subscriber::batches("counting", "q", 5, move |batch: Vec<Context>| {
        seen.lock().unwrap().push(batch.len());
        async {}
    });
    // It is full long before that, however long each publish takes.
    let patient = counting.batch_wait(20 * SECOND);
    let running = db.app().only([patient]).start().await.unwrap();
    for n in 0..5 {
        publish(db, n..n + 1).await;
    }
    db.drained().await;
    publish(db, 0..120).await;
    db.drained().await;
    running.stop().await.unwrap();
    let sizes = sizes.lock().unwrap();
    assert_eq!(sizes[0], 5, "one run for five publishes, of ten workers: {sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 5), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), 125);
}

async fn each_message_of_a_batch_is_settled_in_its_own_way(db: &Db) {
    let judging = Subscriber::batches("judging", "q", 10, |batch: Vec<Context>| async move {
        let mut outcome = BatchOutcome::default();
        for context in &batch {
            match context.decode::<i64>()? {
                0 => {}
                1 => outcome.set(context, Err::<(), _>("one")),
                n => outcome.set(context, outbox::Outcome::reject(n.to_string())),
            }
        }
        Ok::<_, outbox::DecodeError>(outcome)
    });
    let slow = judging.retry(outbox::retry::Constant::new(600 * SECOND));
    let running = db.app().only([slow]).start().await.unwrap();
    publish(db, 0..3).await;
    eventually("all are settled", async || db.letters().await == 1 && db.rows().await == 1).await;
    running.stop().await.unwrap();
    assert_eq!(db.int("SELECT attempts_count FROM outbox").await, 1);
    assert_eq!(db.texts("SELECT note FROM outbox_dlq").await, ["2"]);
}

/// A crash of the server undoes a claim whose commit nobody waited for, and the process
/// takes the row again, beside the delivery that it has.
async fn a_row_that_is_claimed_twice_for_a_batch_is_settled_as_was_said_of_it(db: &Db) {
    let size = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&size);
    let rejects = Subscriber::batches("rejects", "q", 2, move |batch: Vec<Context>| {
        seen.store(batch.len(), Ordering::SeqCst);
        let mut outcome = BatchOutcome::default();
        for context in &batch {
            outcome.set(context, outbox::Outcome::reject("no"));
        }
        async { outcome }
    });
    let rejects = rejects.batch_wait(30 * SECOND).max_workers(1).max_poll(SECOND);
    let running = db.app().only([rejects]).start().await.unwrap();
    publish(db, 0..1).await;
    eventually("it is claimed", async || db.leased().await == 1).await;
    db.exec("UPDATE outbox SET acquired_token = NULL, acquired_at = NULL").await;
    eventually("it is settled", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    assert_eq!((size.load(Ordering::SeqCst), db.letters().await), (2, 1));
}

/// The first runs tell how slow they are; then no row waits for longer than a tenth of a
/// second, and none is claimed before a worker ends.
async fn no_more_rows_are_held_than_slow_handlers_will_reach(db: &Db) {
    capture::start();
    let queue = outbox_tests::backend::unique("slow");
    let ended = Arc::<AtomicI64>::default();
    let counted = Arc::clone(&ended);
    let slow = Subscriber::new("slow", queue.as_str(), move |_: Context| {
        let ended = Arc::clone(&counted);
        async move {
            tokio::time::sleep(SECOND / 2).await;
            ended.fetch_add(1, Ordering::SeqCst);
        }
    });
    let slow = slow.max_workers(2).fetch_batch(50).lease_ttl(10 * SECOND);
    db.send_all((0..4_i64).map(|n| Outgoing::new(queue.as_str(), &n))).await;
    let running = db.app().only([slow]).start().await.unwrap();
    db.drained().await;
    db.send_all((0..40_i64).map(|n| Outgoing::new(queue.as_str(), &n))).await;
    let mut most = 0;
    eventually("they are handled", async || {
        // Of all that are not free: what has ended is only to be acked.
        let gone = ended.load(Ordering::SeqCst);
        let free = db.int("SELECT count(*) FROM outbox WHERE acquired_token IS NULL").await;
        let held = 4 + 40 - free - gone;
        // One that ends in between may be looked at twice.
        let settled = gone == ended.load(Ordering::SeqCst);
        most = if settled { most.max(held) } else { most };
        free <= 25
    })
    .await;
    // Two run, and two more are there for the workers when these end.
    assert!((2..=4).contains(&most), "{most} rows were held");
    let deliveries = db.int("SELECT max(deliveries_count) FROM outbox").await;
    assert!(deliveries <= 1, "no row was held in vain: {deliveries}");
    let _ = running.stop().await;
}

/// Takes a message away from the run that has it, outside of the transaction that
/// is rolled back.
async fn steal(context: &Context) -> Result<(), sqlx::Error> {
    let steal = "UPDATE outbox SET acquired_token = gen_random_uuid(), \
                 acquired_at = clock_timestamp() - interval '1 hour' WHERE id = $1";
    let pool = context.state::<sqlx::PgPool>().expect("a pool");
    sqlx::query(steal).bind(context.id()).execute(pool).await.map(drop)
}

#[derive(Clone, Copy, PartialEq)]
enum Stolen {
    No,
    Unnoticed,
    Noticed,
}

fn booking(stolen: Stolen) -> Subscriber {
    Subscriber::batches("booking", "q", 10, move |batch: Vec<Context>| async move {
        let mut tx = Tx::<sqlx::Postgres>::from_context(&batch[0]).await?;
        let mut outcome = BatchOutcome::default();
        for context in &batch {
            let n = context.decode::<i64>()?;
            if n < 0 {
                outcome.set(context, Err::<(), _>("negative"));
                continue;
            }
            sqlx::query("INSERT INTO done VALUES ($1)").bind(n).execute(&mut *tx).await?;
        }
        if stolen != Stolen::No && batch.len() > 1 && batch[0].deliveries() == 1 {
            steal(&batch[0]).await?;
            if stolen == Stolen::Noticed {
                batch[0].cancelled().cancelled().await;
            }
        }
        Ok::<_, outbox::HandlerError>(outcome)
    })
    .retry(outbox::retry::NoRetry)
}

async fn done(db: &Db) -> (i64, i64) {
    let distinct = db.int("SELECT count(DISTINCT n) FROM done").await;
    (db.int("SELECT count(*) FROM done").await, distinct)
}

async fn one_transaction_settles_what_succeeded_of_a_batch(db: &Db) {
    db.exec("CREATE TABLE done (n bigint)").await;
    publish(db, -1..5).await;
    let running = db.app().only([booking(Stolen::No)]).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!((done(db).await, db.letters().await), ((5, 5), 1));
}

async fn all_count_once(db: &Db, stolen: Stolen) {
    db.exec("CREATE TABLE done (n bigint)").await;
    publish(db, 0..5).await;
    let app = db.app().state(db.pg().clone()).only([booking(stolen).lease_ttl(SECOND)]);
    let running = app.start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!((done(db).await, db.letters().await), ((5, 5), 0), "each counts once");
}

async fn a_lost_lease_undoes_the_transaction_of_its_batch(db: &Db) {
    all_count_once(db, Stolen::Unnoticed).await;
}

async fn a_lease_that_is_known_to_be_lost_undoes_it_too(db: &Db) {
    all_count_once(db, Stolen::Noticed).await;
}

static RUNS: AtomicUsize = AtomicUsize::new(0);

/// The first run loses its first message.
#[subscriber("q", batch = 10, publish = "doubled", lease_ttl = "1m")]
async fn doubling(numbers: Batch<i64>) -> Result<Vec<i64>, sqlx::Error> {
    if RUNS.fetch_add(1, Ordering::SeqCst) == 0 {
        steal(&numbers[0].context).await?;
    }
    Ok(numbers.iter().map(|item| 2 * item.message).collect())
}

async fn a_message_whose_lease_is_lost_publishes_nothing_and_the_others_of_its_batch_do(db: &Db) {
    publish(db, 0..3).await;
    let app = db.app().state(db.pg().clone()).only([doubling::subscriber()]);
    let running = app.start().await.unwrap();
    let left = "SELECT count(*) FROM outbox WHERE queue = 'q'";
    eventually("all are handled", async || db.int(left).await == 0).await;
    running.stop().await.unwrap();
    assert_eq!(RUNS.load(Ordering::SeqCst), 2, "the lost one ran again");
    let doubled = "SELECT convert_from(payload, 'UTF8') FROM outbox ORDER BY 1";
    assert_eq!(db.texts(doubled).await, ["0", "2", "4"]);
}

/// What the runs of one database tell.
#[derive(Clone, Default)]
struct Threads {
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    /// Of a task of the runtime, which comes once in ten milliseconds.
    ticks: Arc<AtomicUsize>,
}

/// On the two threads of the runtime, two of these would leave none for its tasks.
#[subscriber("q", batch = 5, max_workers = 2, lease_ttl = "1s", retry = NoRetry)]
fn blocking(_: Batch<i64>, State(threads): State<Threads>) {
    let running = threads.running.fetch_add(1, Ordering::SeqCst) + 1;
    threads.most.fetch_max(running, Ordering::SeqCst);
    let ticks = threads.ticks.load(Ordering::SeqCst);
    std::thread::sleep(2 * SECOND);
    threads.running.fetch_sub(1, Ordering::SeqCst);
    let ticks = threads.ticks.load(Ordering::SeqCst) - ticks;
    assert!(ticks > 10, "the runtime stood still: {ticks}");
}

async fn a_plain_fn_of_batches_runs_beside_the_runtime_on_as_many_threads_as_workers(db: &Db) {
    let case = async || {
        let threads = Threads::default();
        let ticks = Arc::clone(&threads.ticks);
        let ticker = tokio::spawn(async move {
            loop {
                tokio::time::sleep(SECOND / 100).await;
                ticks.fetch_add(1, Ordering::SeqCst);
            }
        });
        publish(db, 0..20).await;
        let app = db.app().state(threads.clone()).only([blocking::subscriber()]);
        let stats = app.stats();
        let running = app.start().await.unwrap();
        db.drained().await;
        running.stop().await.unwrap();
        ticker.abort();
        let one = stats.subscribers().remove(0);
        (threads.most.load(Ordering::SeqCst), (one.dispatched, one.acked, one.lease_lost))
    };
    db.unless_stalled(SECOND / 5, (2, (20, 20, 0)), case).await;
}

/// Another process has taken it, and its lease outlasts the test however slow that is.
async fn stolen(db: &Db, id: i64) {
    owned(db, id, BESIDE_OTHERS, 2, Duration::ZERO).await;
    let hour = if db.is_postgres() { "interval '1 hour'" } else { "3600000000" };
    db.exec(format!("UPDATE outbox SET acquired_at = acquired_at + {hour} WHERE id = {id}")).await;
}

/// Leases are extended all at once, and not again before it is known which are lost.
async fn extended_twice(db: &Db, id: i64) {
    let leased = format!("SELECT CAST(acquired_at AS text) FROM outbox WHERE id = {id}");
    for _ in 0..2 {
        let before = db.texts(leased.clone()).await;
        eventually("the lease goes on", async || db.texts(leased.clone()).await != before).await;
    }
}

/// It waits while another row runs alone, for longer than a lease if need be.
async fn a_message_that_is_lost_while_its_batch_waits_to_start_is_not_started_with_it(db: &Db) {
    let suspect = db.publish("suspects", 1).await;
    // It has come back before: it is alone for longer than this takes.
    owned(db, suspect, BESIDE_OTHERS, 6, 2 * HOUR).await;
    let (alone, probe) = probe::gated("alone", "suspects");
    let alone = alone.max_deliveries(3).lease_ttl(12 * SECOND);
    let started = Arc::<Mutex<Vec<Vec<i64>>>>::default();
    let seen = Arc::clone(&started);
    let beside = Subscriber::batches("beside", "q", 10, move |batch: Vec<Context>| {
        seen.lock().unwrap().push(batch.iter().map(Context::id).collect());
        async {}
    });
    let beside = beside.max_workers(1).lease_ttl(12 * SECOND);
    let running = db.app().only([alone, beside]).start().await.unwrap();
    probe.start().await;
    let messages = db.send_all((0..2).map(|n| Outgoing::new("q", &n))).await;
    let [lost, kept] = [0, 1].map(|at| messages[at].id().unwrap());
    eventually("both are claimed", async || db.leased().await == 3).await;
    stolen(db, lost).await;
    extended_twice(db, kept).await;
    probe.let_end(1);
    eventually("the batch starts", async || !started.lock().unwrap().is_empty()).await;
    assert_eq!(started.lock().unwrap()[0], [kept]);
    running.stop().await.unwrap();
}

/// Another process may have a worker for them long before their leases are over.
async fn rows_that_wait_behind_a_handler_without_end_are_given_back_in_time(db: &Db) {
    let (endless, probe) = probe::gated("endless", "q");
    publish(db, 0..5).await;
    let endless = endless.max_workers(1).lease_ttl(18 * SECOND);
    let first = db.app().only([endless]).start().await.unwrap();
    probe.start().await;
    eventually("all are claimed", async || db.leased().await == 5).await;
    let (other, others) = probe::free("other", "q");
    let often = SECOND / 10;
    let other = other.lease_ttl(18 * SECOND).min_poll(often).max_poll(often);
    let second = db.app().only([other]).start().await.unwrap();
    for run in others.starts(4).await {
        assert_eq!(run.deliveries, 1, "a lease that runs out is a delivery");
    }
    probe.let_end(1);
    db.drained().await;
    first.stop().await.unwrap();
    second.stop().await.unwrap();
}

/// Three messages in one batch, the first of which is to run alone, and the app that has them; and
/// what was started together.
async fn with_a_suspect(
    db: &Db,
) -> ([i64; 3], Arc<Semaphore>, Arc<Mutex<Vec<Vec<i64>>>>, outbox::RunningApp) {
    let messages = db.send_all((0..3).map(|n| Outgoing::new("q", &n))).await;
    let ids = [0, 1, 2].map(|at| messages[at].id().unwrap());
    owned(db, ids[0], BESIDE_OTHERS, 6, 2 * HOUR).await;
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::<Mutex<Vec<Vec<i64>>>>::default();
    let (gated, seen) = (Arc::clone(&gate), Arc::clone(&started));
    let batches = Subscriber::batches("it", "q", 3, move |batch: Vec<Context>| {
        seen.lock().unwrap().push(batch.iter().map(Context::id).collect());
        let gate = Arc::clone(&gated);
        async move { gate.acquire().await.unwrap().forget() }
    });
    let batches = batches.max_deliveries(3).max_workers(1).batch_wait(SECOND);
    let running = db.app().only([batches.lease_ttl(12 * SECOND)]).start().await.unwrap();
    eventually("some of them run", async || !started.lock().unwrap().is_empty()).await;
    (ids, gate, started, running)
}

/// It may take as long as it likes, and no other process can have them.
async fn a_message_that_runs_alone_holds_up_none_of_its_batch(db: &Db) {
    let ([suspect, one, other], gate, started, running) = with_a_suspect(db).await;
    assert_eq!(started.lock().unwrap()[..], [vec![one, other]]);
    gate.add_permits(1);
    eventually("the suspect runs", async || started.lock().unwrap().len() > 1).await;
    assert_eq!(started.lock().unwrap()[1..], [vec![suspect]]);
    eventually("the others are settled", async || db.rows().await == 1).await;
    gate.add_permits(1);
    db.drained().await;
    running.stop().await.unwrap();
}

async fn a_message_that_is_lost_before_it_runs_alone_is_not_started(db: &Db) {
    let ([suspect, one, other], gate, started, running) = with_a_suspect(db).await;
    stolen(db, suspect).await;
    extended_twice(db, one).await;
    gate.add_permits(1);
    eventually("the others are settled", async || db.rows().await == 1).await;
    running.stop().await.unwrap();
    assert_eq!(started.lock().unwrap()[..], [vec![one, other]]);
    assert_eq!((db.leased().await, db.deliveries().await), (1, 2), "it is somebody else's");
}
