//! The database does not answer, or its connections die, just when a result is to
//! be written.

use outbox::App;
use outbox_tests::db::Db;
use outbox_tests::proxy::Proxy;
use outbox_tests::wait::{eventually, soon};
use outbox_tests::{capture, on_postgres, probe};
use sqlx::postgres::PgPoolOptions;
use tokio::time::Instant;

use super::leases::lost;
use super::settle::{Lock, all_run, ends, settled_once};
use super::{HOUR, SECOND, free, gated};

on_postgres!(
    a_lease_that_cannot_be_extended_is_given_up_in_time,
    a_settle_whose_connection_is_killed_is_repeated,
    a_settle_that_fails_until_the_lease_is_over_is_given_up,
    connections_that_die_on_their_way_back_are_replaced,
    a_start_goes_well_though_connections_die_on_their_way_back,
);

/// The database answers nothing for longer than the lease: another claim may own
/// the row by then, so the handler must not run on.
async fn a_lease_that_cannot_be_extended_is_given_up_in_time(db: &Db) {
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber.lease_ttl(6 * SECOND)]).start().await.unwrap();
    db.publish("q", 7).await;
    let run = probe.start().await;
    let lock = Lock::take(db).await;
    soon("the handler is told", run.context.cancelled().cancelled()).await;
    let over = Instant::now() - run.context.lease_deadline();
    assert!(over < 5 * SECOND, "it ran on for {over:?}");
    lock.release().await;
    let again = probe.start().await;
    assert_eq!(again.id, run.id);
    probe.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!((probe.finished(), probe.dropped()), (1, 1));
}

async fn a_settle_whose_connection_is_killed_is_repeated(db: &Db) {
    let (subscribers, probes) = ends();
    let running = db.app().only(subscribers).start().await.unwrap();
    all_run(db, &probes).await;
    let lock = Lock::take(db).await;
    probes.iter().for_each(|probe| probe.let_end(1));
    let settling = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'engine'
        AND wait_event_type = 'Lock'";
    for _ in 0..3 {
        eventually("a settle is under way", async || db.int(settling).await > 0).await;
    }
    lock.release().await;
    settled_once(db).await;
    running.stop().await.unwrap();
    assert!(probes.iter().all(|probe| probe.finished() == 1));
}

/// Each try fails with an error that may pass, and none after the lease is over:
/// the row is another claim's then.
async fn a_settle_that_fails_until_the_lease_is_over_is_given_up(db: &Db) {
    capture::start();
    db.exec(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE SQLSTATE '40001'; END $$",
    )
    .await;
    // Of the statement, so that it fails also for a row that is another's by then.
    db.exec("CREATE TRIGGER fail BEFORE DELETE ON outbox EXECUTE FUNCTION fail()").await;
    let queue = outbox_tests::backend::unique("given_up");
    let (subscriber, probe) = probe::gated("it", &queue);
    let subscriber = subscriber.lease_ttl(6 * SECOND).min_poll(HOUR).max_poll(HOUR);
    let running = db.app().only([subscriber]).start().await.unwrap();
    db.publish(&queue, 7).await;
    let run = probe.start().await;
    probe.let_end(1);
    eventually("it is given up", async || lost(&queue).is_some()).await;
    assert!(Instant::now() >= run.context.lease_deadline(), "it is tried until then");
    db.exec("DROP TRIGGER fail ON outbox").await;
    let again = probe.start().await;
    assert_eq!((again.id, again.attempts), (run.id, 0));
    probe.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
    let events = capture::events(&queue);
    let told: Vec<_> = events.iter().filter_map(|line| line.event()).collect();
    let count = |name| told.iter().filter(|told| **told == name).count();
    let runs = probe.finished() + probe.dropped();
    assert_eq!((count("dispatched"), count("acked")), (runs, 1), "{told:?}");
    let given_up = lost(&queue).unwrap();
    assert_eq!(given_up.get("unknown"), Some("false"), "each try was refused");
}

/// After a statement that failed each is asked for a sign of life, and gives none. There are
/// four places for connections.
async fn connections_that_die_on_their_way_back_are_replaced(db: &Db) {
    let proxy = Proxy::before(db).await;
    let (subscriber, probe) = free("q");
    db.exec(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE SQLSTATE '55P03'; END $$",
    )
    .await;
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    let app = App::postgres(pool).names(db.names.clone()).only([subscriber]);
    let running = app.start().await.unwrap();
    db.exec("CREATE TRIGGER fail BEFORE UPDATE ON outbox EXECUTE FUNCTION fail()").await;
    proxy.freeze_at_pings(4);
    db.publish("q", 7).await;
    eventually("all have died", async || proxy.pings_left() == 0).await;
    db.exec("DROP TRIGGER fail ON outbox").await;
    probe.start().await;
    db.drained().await;
    running.stop().await.unwrap();
}

/// It sends none back to the pool, which would ask each for a sign of life.
async fn a_start_goes_well_though_connections_die_on_their_way_back(db: &Db) {
    let proxy = Proxy::before(db).await;
    proxy.freeze_at_pings(1000);
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    let app = App::postgres(pool).names(db.names.clone()).only([free("q").0]);
    let running = soon("it starts", app.start()).await.unwrap();
    assert_eq!(proxy.pings_left(), 1000);
    soon("it stops", running.stop()).await.unwrap();
}
