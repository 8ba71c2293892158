//! Results are written whatever happens to the database meanwhile, and each of
//! them on its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::retry::{Constant, NoRetry};
use outbox::{App, Context, Outgoing, Subscriber};
use outbox_tests::db::{Db, Pool};
use outbox_tests::probe::{self, Probe};
use outbox_tests::wait::{eventually, eventually_within};
use outbox_tests::{capture, on_both, on_postgres};
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Postgres, Sqlite, Transaction};

use super::leases::lost;
use super::{HOUR, SECOND, asleep, free, gated};

on_both!(
    a_settle_is_repeated_while_the_database_is_busy,
    one_refused_dead_letter_leaves_the_others_of_its_batch_settled,
);

on_postgres!(
    results_are_written_beside_a_write_that_hangs,
    acks_that_become_letters_keep_no_other_waiting_for_the_table_of_these,
);

/// The database refuses what they publish, and each of them would wait by itself.
async fn acks_that_become_letters_keep_no_other_waiting_for_the_table_of_these(db: &Db) {
    db.exec(
        "CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'no replies here'; END $$",
    )
    .await;
    db.exec(
        "CREATE TRIGGER refused BEFORE INSERT ON outbox FOR EACH ROW
         WHEN (NEW.queue = 'replies') EXECUTE FUNCTION refused()",
    )
    .await;
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let replies = Subscriber::new("replies", "refused", move |ctx: Context| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(ctx.publisher().collect(Outgoing::new("replies", &1)))
    });
    let (other, probe) = free("other");
    let running = db.app().only([replies.retry(NoRetry), other]).start().await.unwrap();
    let mut lock = db.pg().begin().await.unwrap();
    sqlx::query("LOCK TABLE outbox_dlq IN SHARE MODE").execute(&mut *lock).await.unwrap();
    // Enough for one settler of acks, and then for the other one.
    for n in 1..=2 {
        db.send_all((0..30).map(|n: i64| Outgoing::new("refused", &n))).await;
        eventually("they run", async || runs.load(Ordering::SeqCst) == 30 * n).await;
        db.engine_waits().await;
    }
    for n in 1..=3 {
        db.publish("other", n).await;
        probe.start().await;
        let left = "SELECT count(*) FROM outbox WHERE queue = 'other'";
        let acked = async || db.int(left).await == 0;
        eventually_within(10 * SECOND, "it is acked", acked).await;
    }
    assert_eq!(db.letters().await, 0);
    lock.rollback().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!((db.letters().await, runs.load(Ordering::SeqCst)), (60, 60));
}

/// Nobody else can write while it is held.
pub(super) enum Lock {
    Postgres(Transaction<'static, Postgres>),
    Sqlite(Transaction<'static, Sqlite>),
}

impl Lock {
    pub(super) async fn take(db: &Db) -> Self {
        match &db.pool {
            Pool::Postgres(pool) => {
                let mut tx = pool.begin().await.unwrap();
                let lock = "LOCK TABLE outbox, outbox_dlq IN SHARE MODE";
                sqlx::query(lock).execute(&mut *tx).await.unwrap();
                Self::Postgres(tx)
            }
            Pool::Sqlite(pool) => Self::Sqlite(outbox::sqlite::begin(pool).await.unwrap()),
        }
    }

    pub(super) async fn release(self) {
        match self {
            Self::Postgres(tx) => tx.rollback().await,
            Self::Sqlite(tx) => tx.rollback().await,
        }
        .unwrap();
    }
}

/// A subscriber for each way to end, named as its queue.
pub(super) fn ends() -> (Vec<Subscriber>, Vec<Probe>) {
    let failing = |queue| asleep(probe::with_result(queue, queue, |_| Err("no".into())));
    let (ack, acks) = gated("ack");
    let (retry, retries) = failing("retry");
    let (dead, deaths) = failing("dead");
    let retry = retry.retry(Constant::new(HOUR));
    (vec![ack, retry, dead.retry(NoRetry)], vec![acks, retries, deaths])
}

/// Publishes a message for each of them, and waits until all three run.
pub(super) async fn all_run(db: &Db, probes: &[Probe]) {
    db.send_all(["ack", "retry", "dead"].map(|queue| Outgoing::new(queue, &7))).await;
    for probe in probes {
        probe.start().await;
    }
}

pub(super) async fn settled_once(db: &Db) {
    eventually("all three are settled", async || {
        db.leased().await == 0 && db.rows().await == 1 && db.letters().await == 1
    })
    .await;
    assert_eq!(db.int("SELECT attempts_count FROM outbox WHERE queue = 'retry'").await, 1);
    assert_eq!(db.int("SELECT count(*) FROM outbox_dlq WHERE queue = 'dead'").await, 1);
}

/// An app whose statements wait for locks for a moment only.
fn impatient(db: &Db) -> App {
    let moment = Duration::from_millis(50);
    let app = match &db.pool {
        Pool::Postgres(pool) => {
            let options = (*pool.connect_options()).clone().options([("lock_timeout", "50ms")]);
            App::postgres(PgPoolOptions::new().connect_lazy_with(options))
        }
        Pool::Sqlite(pool) => {
            let options = (*pool.connect_options()).clone().busy_timeout(moment);
            App::sqlite(SqlitePoolOptions::new().connect_lazy_with(options))
        }
    };
    app.names(db.names.clone())
}

async fn a_settle_is_repeated_while_the_database_is_busy(db: &Db) {
    capture::start();
    let (subscribers, probes) = ends();
    let running = impatient(db).only(subscribers).start().await.unwrap();
    all_run(db, &probes).await;
    // A file says that it is locked, a server why it gave up.
    let why = if db.is_postgres() { "lock timeout" } else { "database is locked" };
    let tries = || {
        capture::count(|line| line.says("message", "settling failed") && line.says("error", why))
    };
    let before = tries();
    let lock = Lock::take(db).await;
    probes.iter().for_each(|probe| probe.let_end(1));
    eventually("it is tried again", async || tries() >= before + 3).await;
    assert_eq!((db.rows().await, db.letters().await), (3, 0));
    lock.release().await;
    settled_once(db).await;
    running.stop().await.unwrap();
    assert!(probes.iter().all(|probe| probe.finished() == 1));
}

/// A dead-letter table that takes no letter of this row.
async fn refuse(db: &Db, id: i64) {
    if db.is_postgres() {
        db.exec(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'refused'; END $$",
        )
        .await;
        // It fires when all of the statement is done.
        db.exec(format!(
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON outbox_dlq
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
             WHEN (NEW.original_id = {id}) EXECUTE FUNCTION refuse()"
        ))
        .await;
    } else {
        db.exec(format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON outbox_dlq WHEN NEW.original_id = {id}
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        ))
        .await;
    }
}

async fn one_refused_dead_letter_leaves_the_others_of_its_batch_settled(db: &Db) {
    capture::start();
    let queue = outbox_tests::backend::unique("refused");
    let (subscriber, probe) = asleep(probe::with_result("it", &queue, |_| Err("no".into())));
    let subscriber = subscriber.retry(NoRetry).lease_ttl(12 * SECOND);
    let running = db.app().only([subscriber]).start().await.unwrap();
    let published = db.send_all((0..6).map(|n| Outgoing::new(&*queue, &n))).await;
    let refused = published[3].id().unwrap();
    refuse(db, refused).await;
    probe.starts(6).await;
    // Whatever ends meanwhile goes into one batch.
    let lock = Lock::take(db).await;
    probe.let_end(6);
    eventually("all have ended", async || probe.finished() == 6).await;
    lock.release().await;
    eventually("the others are dead-lettered", async || db.letters().await == 5).await;
    eventually("one is refused", async || lost(&queue).is_some()).await;
    assert_eq!(db.int("SELECT id FROM outbox").await, refused);

    let drop =
        if db.is_postgres() { "DROP TRIGGER refuse ON outbox_dlq" } else { "DROP TRIGGER refuse" };
    db.exec(drop).await;
    let again = probe.start().await;
    assert_eq!((again.id, again.attempts, again.deliveries), (refused, 0, 1));
    probe.let_end(1);
    db.drained().await;
    assert_eq!(db.letters().await, 6);
    running.stop().await.unwrap();
}

async fn results_are_written_beside_a_write_that_hangs(db: &Db) {
    let ((stuck, in_the_way), (other, beside)) = (gated("stuck"), gated("other"));
    let running = db.app().only([stuck, other]).start().await.unwrap();
    let locked = db.publish("stuck", 0).await;
    in_the_way.start().await;
    let mut tx = db.pg().begin().await.unwrap();
    let lock = sqlx::query("SELECT FROM outbox WHERE id = $1 FOR UPDATE").bind(locked);
    lock.execute(&mut *tx).await.unwrap();
    in_the_way.let_end(1);
    db.engine_waits().await;
    for n in 1..=3 {
        db.publish("other", n).await;
        beside.start().await;
        beside.let_end(1);
        eventually("it is settled", async || db.rows().await == 1).await;
    }
    assert_eq!(db.int("SELECT id FROM outbox").await, locked);
    tx.rollback().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
}
